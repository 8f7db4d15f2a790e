import asyncio
import time

import pytest

from trajkit.errors import ServiceError
from trajkit.rollouts.faults import Fault, FaultKind, Faulty
from trajkit.rollouts.running import calling
from trajkit.rollouts.running.calling import Caller, wait_s
from trajkit.rollouts.running.limits import Budget, LimitReached, Limits, Prices
from trajkit.schema import Episode, Transition

BUSY = Fault(FaultKind.RATE_LIMIT, "slow down")
BROKEN = Fault(FaultKind.SERVER, "boom")


@pytest.fixture
def at_once(monkeypatch):
    """A failed request is sent again without a wait."""
    monkeypatch.setattr(calling, "_FIRST_WAIT_S", 0.0)


class Service:
    """Fails as told, one entry per request, then answers; counts what is in flight."""

    def __init__(self, *faults, answer_s=0.0):
        self.faults = list(faults)
        self.answer_s = answer_s
        self.n = self.now = self.most = 0
        self.times = []

    async def __call__(self):
        self.n += 1
        self.times.append(time.monotonic())
        fault = self.faults.pop(0) if self.faults else None
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(self.answer_s)
        finally:
            self.now -= 1
        if fault is not None:
            raise Faulty(fault)
        return "answer"


def caller(**changes) -> Caller:
    return Caller(**({"concurrency": 8, "timeout_s": 5.0, "retries": 3} | changes))


def test_a_failure_that_passes_is_tried_again(at_once):
    service, calls = Service(BROKEN, BROKEN), caller()
    assert asyncio.run(calls.call(service)) == "answer"
    assert (service.n, calls.faults) == (3, {FaultKind.SERVER: 2})


def test_a_lasting_failure_is_not_tried_again():
    service = Service(Fault(FaultKind.REFUSED, "no such model", True))
    with pytest.raises(Faulty):
        asyncio.run(caller().call(service))
    assert service.n == 1


def test_an_answer_that_takes_too_long_is_a_timeout():
    with pytest.raises(Faulty) as caught:
        asyncio.run(caller(timeout_s=0.02, retries=0).call(Service(answer_s=5)))
    assert caught.value.fault == Fault(FaultKind.TIMEOUT, "no answer in 0.02 s")


def test_a_timeout_of_somebody_elses_is_let_through():
    async def attempt():
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        asyncio.run(caller().call(attempt))


def test_waits_are_anything_up_to_a_bound_that_doubles():
    for number, bound in ((0, 0.5), (1, 1), (2, 2), (5, 16), (9, 16)):
        waits = [wait_s(number) for _ in range(400)]
        assert max(waits) <= bound
        assert min(waits) < 0.1 * bound
        assert max(waits) > 0.9 * bound


def test_too_many_requests_halve_the_limit_once_for_all_that_were_in_flight_together(at_once):
    calls = caller(retries=0)

    async def burst(n):
        return await asyncio.gather(
            *(calls.call(Service(BUSY, answer_s=0.01)) for _ in range(n)), return_exceptions=True
        )

    asyncio.run(burst(8))
    assert (calls.throttle.limit, calls.throttle.lowest) == (4, 4)
    asyncio.run(burst(4))
    assert calls.throttle.limit == 2


def test_the_limit_grows_back_by_one_for_each_round_of_answers_and_never_above_what_was_asked():
    calls = caller(retries=0)
    service = Service()

    async def play():
        for _ in range(3):
            with pytest.raises(Faulty):
                await calls.call(Service(BUSY))
        limits = []
        for _ in range(40):
            await calls.call(service)
            limits.append(calls.throttle.limit)
        return limits

    limits = asyncio.run(play())
    # after 1 answer 2, after 2 more 3, after 3 more 4 … : 1 + 2 + … + 7 = 28 answers to be back at 8
    assert [limits.index(n) + 1 for n in range(2, 9)] == [1, 3, 6, 10, 15, 21, 28]
    assert max(limits) == 8


def test_no_more_are_in_flight_than_the_limit_says_and_all_are_answered(at_once):
    calls, service = caller(concurrency=5), Service(answer_s=0.002)

    async def many():
        return await asyncio.gather(*(calls.call(service) for _ in range(60)))

    assert asyncio.run(many()) == ["answer"] * 60
    assert service.most == 5
    assert calls.throttle.n_in_flight == 0


def test_a_cut_limit_holds_for_those_that_already_wait(at_once):
    calls = caller(concurrency=4)
    first, then = Service(*[BUSY] * 4, answer_s=0.01), Service(answer_s=0.005)

    async def many():
        early = [asyncio.create_task(calls.call(first)) for _ in range(4)]
        late = [asyncio.create_task(calls.call(then)) for _ in range(6)]
        await asyncio.gather(*early, *late)

    asyncio.run(many())
    assert calls.throttle.lowest == 2
    assert then.most <= 3  # 2, or 3 after two good answers


def test_after_retry_after_nothing_is_sent_by_anybody_until_then():
    calls, service = caller(), Service(Fault(FaultKind.RATE_LIMIT, "later", retry_after_s=0.2))
    other = Service()

    async def both():
        began = time.monotonic()
        busy = asyncio.create_task(calls.call(service))
        await asyncio.sleep(0.01)
        await asyncio.gather(busy, calls.call(other))
        return began

    began = asyncio.run(both())
    assert service.times[1] - began >= 0.2
    assert other.times[0] - began >= 0.2


def test_a_service_that_says_to_come_back_in_an_hour_has_said_no():
    calls, service = caller(), Service(Fault(FaultKind.RATE_LIMIT, "tomorrow", retry_after_s=3600))

    async def twice():
        with pytest.raises(Faulty, match="tomorrow"):
            await calls.call(service)
        return await calls.call(service)  # and that hour is not waited for

    assert asyncio.run(twice()) == "answer"
    assert service.n == 2


def test_one_that_is_cut_off_while_it_waits_gives_its_turn_to_the_next():
    async def play():
        calls, service = caller(concurrency=1), Service(answer_s=0.02)
        tasks = [asyncio.create_task(calls.call(service)) for _ in range(4)]
        await asyncio.sleep(0.005)
        tasks[1].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        return [one if isinstance(one, str) else type(one) for one in done]

    assert asyncio.run(play()) == ["answer", asyncio.CancelledError, "answer", "answer"]


def test_one_that_is_cut_off_when_its_turn_has_just_come_wakes_the_next():
    async def play():
        calls, service = caller(concurrency=1), Service(answer_s=0.01)
        first, second, third = (asyncio.create_task(calls.call(service)) for _ in range(3))
        first.add_done_callback(lambda _: second.cancel())
        return await asyncio.wait_for(asyncio.gather(first, third), 5)

    assert asyncio.run(play()) == ["answer", "answer"]


def test_the_calls_of_a_run_are_counted_and_stop_at_the_limit_with_those_that_are_sent_again(at_once):
    calls = caller(budget=Budget(Limits(max_calls=3)))

    async def play():
        await calls.call(Service(BROKEN))
        await calls.call(Service())
        with pytest.raises(LimitReached, match="--max-calls is reached: 3 calls"):
            await calls.call(Service())
        return await calls.call(Service(), is_paid=False)  # feedback is still logged

    assert asyncio.run(play()) == "answer"
    assert calls.budget.n_calls == 3


def test_the_money_of_a_run_stops_it_before_the_call_that_would_be_too_much():
    budget = Budget(Limits(max_cost_usd=1.0), Prices(input_usd=100.0, output_usd=200.0))
    calls = caller(budget=budget)

    async def one():
        await calls.call(Service())
        budget.spend(n_input_tokens=1000, n_output_tokens=1000)  # 0.1 + 0.2 USD

    async def play():
        for _ in range(3):
            await one()
        with pytest.raises(LimitReached, match=r"--max-cost-usd is reached: 0\.9000 of 1 USD"):
            await one()

    asyncio.run(play())
    assert budget.cost_usd == pytest.approx(0.9)
    assert (budget.n_input_tokens, budget.n_output_tokens) == (3000, 3000)


def test_calls_in_flight_are_taken_to_cost_as_much_as_the_dearest_so_far():
    budget = Budget(Limits(max_cost_usd=1.0))
    budget.begin_call()
    budget.end_call()
    budget.spend(n_input_tokens=None, n_output_tokens=None, cost_usd=0.3)
    budget.begin_call()
    budget.begin_call()
    with pytest.raises(LimitReached):
        budget.begin_call()


def test_a_limit_on_money_without_a_meter_is_an_error():
    with pytest.raises(ServiceError, match="does not report the tokens"):
        Budget(Limits(max_cost_usd=1.0), Prices(1.0, 1.0)).spend(n_input_tokens=5, n_output_tokens=None)
    budget = Budget(prices=Prices(1.0, 1.0))
    budget.spend(n_input_tokens=5, n_output_tokens=None)
    assert (budget.n_unmetered, budget.n_input_tokens, budget.cost_usd) == (1, 5, 0)


def test_an_answer_costs_what_its_tokens_cost_unless_its_service_said_so():
    steps = (
        Transition(step_index=0, n_input_tokens=1_000_000, n_output_tokens=500_000),
        Transition(step_index=1, n_input_tokens=10, n_output_tokens=10, cost_usd=0.5),
        Transition(step_index=2, n_input_tokens=10),
    )
    episode = Prices(0.4, 1.6).priced(Episode(episode_id="e", source="test", steps=steps))
    # 1 · 0.4 + 0.5 · 1.6
    assert [step.cost_usd for step in episode.steps] == [pytest.approx(1.2), 0.5, None]


def test_the_time_of_a_run_is_up_for_whoever_asks_next():
    now = [100.0]
    budget = Budget(Limits(max_minutes=2), clock=lambda: now[0])
    budget.begin_call()
    now[0] = 219.9
    budget.check_time()
    now[0] = 220.0
    for ask in (budget.check_time, budget.begin_call):
        with pytest.raises(LimitReached, match="--max-minutes is reached: 2 min"):
            ask()


class Away(Service):
    """Answers, is gone for a while, and answers again."""

    def __init__(self, n_before, gone_s):
        super().__init__(answer_s=0.002)
        self.n_before, self.gone_s = n_before, gone_s
        self.gone_at = None
        self.n_refused = 0

    async def __call__(self):
        if self.n >= self.n_before and self.gone_at is None:
            self.gone_at = time.monotonic()
        if self.gone_at is not None and time.monotonic() - self.gone_at < self.gone_s:
            self.n_refused += 1
            raise Faulty(Fault(FaultKind.CONNECTION, "nothing listens"))
        return await super().__call__()


def test_a_service_that_goes_away_and_comes_back_loses_nothing(monkeypatch):
    monkeypatch.setattr(calling, "_FIRST_WAIT_S", 0.02)
    calls, service = caller(concurrency=50, retries=1), Away(n_before=60, gone_s=0.5)

    async def one():
        return [await calls.call(service) for _ in range(4)]

    async def many():
        return await asyncio.gather(*(one() for _ in range(50)))

    assert asyncio.run(many()) == [["answer"] * 4] * 50
    assert 0 < service.n_refused < 100  # those that were in flight, and then one at a time
    assert calls.throttle.limit == 50


def test_a_service_that_stays_away_is_not_waited_for_for_ever(monkeypatch):
    monkeypatch.setattr(calling, "_FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(calling, "OUTAGE_S", 0.2)
    calls, service = caller(concurrency=8, retries=1), Away(n_before=8, gone_s=1e9)

    async def many():
        await asyncio.gather(*(calls.call(service) for _ in range(8)))
        return await asyncio.gather(*(calls.call(service) for _ in range(20)), return_exceptions=True)

    began = time.monotonic()
    assert all(isinstance(one, Faulty) for one in asyncio.run(many()))
    assert 0.2 < time.monotonic() - began < 30
    assert calls.throttle.limit == 8


def test_a_service_that_never_answered_and_one_that_is_not_to_be_asked_again_are_not_waited_for(at_once):
    gone = Fault(FaultKind.CONNECTION, "nothing listens")
    service = Service(*[gone] * 9)
    with pytest.raises(Faulty) as caught:
        asyncio.run(caller(retries=2).call(service))
    assert (service.n, caught.value.fault) == (3, gone)

    async def then():
        calls = caller(retries=0)
        await calls.call(Service())
        await calls.call(Service(gone))

    with pytest.raises(Faulty):
        asyncio.run(then())
