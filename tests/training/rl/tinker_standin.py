"""A stand-in for a service that speaks Tinker's API: the wire protocol of the client 0.38, over HTTP.

It really draws from a model and trains it with torch. Unlike the service it trains every weight and no
adapter, answers at once, and keeps all in memory.
"""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import torch
import transformers

from tests.training.hosted.loopback import Loopback, Reply, Request

KEY = "tml-the-key-of-a-test"


class TinkerStandIn(Loopback):
    """The service, while it is entered. `url` is its address.

    Args:
        base: Folder of the only model that it has.
    """

    def __init__(self, base: str) -> None:
        from tinker.proto import tinker_public_pb2

        super().__init__(self._heard)
        self._proto, self._base = tinker_public_pb2, base
        self.network: Any = transformers.AutoModelForCausalLM.from_pretrained(base)
        self._ids = itertools.count()
        self._results: dict[str, Any] = {}
        self.models: dict[str, tuple[Any, torch.optim.Adam]] = {}
        self.samplers: dict[str, Any] = {}
        self.saved: dict[str, tuple[Any, Any]] = {}
        self.keys: set[str | None] = set()
        self.losses: list[tuple[str, float]] = []
        """Loss function and its sum, of each step of a gradient."""
        self.fails_after: int | None = None
        """Number of saved states after which no gradient is computed."""
        self._broken = set[str]()

    def _heard(self, request: Request) -> Reply:
        name, key = request.path.removeprefix("/api/v1/"), request.headers.get("x-api-key")
        if name.startswith("client/"):
            return Reply({})
        self.keys.add(key)
        if key != KEY:
            return Reply({"error": f"the key {key} is not known"}, 401)
        if name.startswith("samplers/"):
            return Reply({"sampler_id": name[9:], "base_model": self._base})
        is_proto = "protobuf" in request.headers.get("content-type", "")
        status, made = getattr(self, f"_{name}")(request.body if is_proto else request.json)
        kind = {"Content-Type": "application/x-protobuf"} if isinstance(made, bytes) else {}
        return Reply(made, status, kind)

    def _future(self, result: Any, **more: Any) -> tuple[int, Any]:
        request_id = str(next(self._ids))
        self._results[request_id] = result
        return 200, {"request_id": request_id, **more}

    def _retrieve_future(self, body: Any) -> tuple[int, Any]:
        return 200, self._results.pop(body["request_id"])

    def _create_session(self, body: Any) -> tuple[int, Any]:
        return 200, {"session_id": f"session-{next(self._ids)}"}

    def _session_heartbeat(self, body: Any) -> tuple[int, Any]:
        return 200, {}

    def _create_model(self, body: Any) -> tuple[int, Any]:
        assert body["base_model"] == self._base
        model_id = self._model(body)
        return self._future({"model_id": model_id})

    def _model(self, body: Any) -> str:
        network = copy.deepcopy(self.network)
        model_id = f"{body['session_id']}:train:{body['model_seq_id']}"
        self.models[model_id] = network, torch.optim.Adam(network.parameters())
        return model_id

    def _get_info(self, body: Any) -> tuple[int, Any]:
        about = {"arch": "llama", "model_name": self._base, "tokenizer_id": self._base}
        return 200, {"model_id": body["model_id"], "model_data": about, "model_name": self._base}

    def _save_weights(self, body: Any) -> tuple[int, Any]:
        assert body["ttl_seconds"] >= 3600
        network, optimizer = self.models[body["model_id"]]
        path = f"tinker://{body['model_id']}/weights/{body['path']}"
        self.saved[path] = copy.deepcopy((network.state_dict(), optimizer.state_dict()))
        return self._future({"path": path})

    def _load_weights(self, body: Any) -> tuple[int, Any]:
        assert body["optimizer"]
        for part, state in zip(self.models[self._model(body)], self.saved[body["path"]], strict=True):
            part.load_state_dict(copy.deepcopy(state))
        return self._future({"path": body["path"]})

    def _save_weights_for_sampler(self, body: Any) -> tuple[int, Any]:
        name = body.get("path") or f"ephemeral-{next(self._ids)}"
        path = f"tinker://{body['model_id']}/sampler_weights/{name}"
        self.samplers[path] = copy.deepcopy(self.models[body["model_id"]][0])
        return self._future({"path": path} if body.get("path") else {"sampling_session_id": path})

    def _asample(self, body: Any) -> tuple[int, Any]:
        how, (chunk,) = body["sampling_params"], body["prompt"]["chunks"]
        network, chance = self.samplers[body["sampling_session_id"]], torch.Generator()
        chance.manual_seed(how["seed"])
        said: list[int] = []
        logprobs: list[float] = []
        with torch.no_grad():
            while len(said) < how["max_tokens"] and not set(said) & set(how["stop"]):
                logits = network(torch.tensor([chunk["tokens"] + said])).logits[0, -1]
                chances = (logits / how["temperature"]).log_softmax(-1)
                said.append(int(torch.multinomial(chances.exp(), 1, generator=chance)))
                logprobs.append(float(chances[said[-1]]))
        made = self._proto.SampleResponse()
        sequence = made.sequences.add()
        ended = set(said) & set(how["stop"])
        sequence.stop_reason = getattr(self._proto, f"STOP_REASON_{'STOP' if ended else 'LENGTH'}")
        sequence.tokens = np.array(said, dtype=np.int32).tobytes()
        sequence.logprobs = np.array(logprobs, dtype=np.float32).tobytes()
        return self._future(made.SerializeToString(), sample_sequence_ids=[str(next(self._ids))])

    def _forward_backward(self, body: bytes) -> tuple[int, Any]:
        asked = self._proto.ForwardBackwardRequest()
        asked.ParseFromString(body)
        if len(self.saved) == self.fails_after:
            self._broken.add(asked.model_id)
        if asked.model_id in self._broken:  # for good: the client may send what it had queued later
            return 400, {"error": "the model is out of order"}
        network, _ = self.models[asked.model_id]
        outputs: list[Any] = []
        total: Any = torch.zeros(())
        for datum in asked.data:
            assert set(datum.loss_fn_inputs) == {"target_tokens", "logprobs", "advantages"}
            tokens = np.frombuffer(datum.model_input[0].encoded_text.tokens, dtype=np.int32)
            inputs = {
                name: torch.from_numpy(
                    np.frombuffer(
                        tensor.dense, dtype=np.int64 if name == "target_tokens" else np.float32
                    ).copy()
                )
                for name, tensor in datum.loss_fn_inputs.items()
            }
            chances = network(torch.from_numpy(tokens.astype(np.int64))[None]).logits[0].log_softmax(-1)
            logprobs = chances.gather(-1, inputs["target_tokens"][:, None])[:, 0]
            ratio, advantages = (logprobs - inputs["logprobs"]).exp(), inputs["advantages"]
            gains = ratio * advantages
            if asked.loss_fn == "ppo":
                gains = torch.minimum(gains, ratio.clamp(0.8, 1.2) * advantages)
            total = total - gains.sum()
            outputs.append(logprobs.detach().numpy())
        total.backward()
        self.losses.append((asked.loss_fn, float(total.detach())))
        made = self._proto.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord")
        record = made.loss_fn_outputs.add(num_datums=len(outputs))
        field = record.fields["logprobs"]
        field.data, field.dtype = np.concatenate(outputs).tobytes(), self._proto.DTYPE_FLOAT32
        sizes = [0, *(each.nbytes for each in outputs)]
        field.offsets = np.cumsum(sizes).astype(np.int64).tobytes()
        return self._future(made.SerializeToString())

    def _optim_step(self, body: Any) -> tuple[int, Any]:
        _, optimizer = self.models[body["model_id"]]
        how = body.get("optim_params") or body["adam_params"]
        optimizer.param_groups[0]["lr"] = how["learning_rate"]
        optimizer.step()
        optimizer.zero_grad()
        return self._future({})
