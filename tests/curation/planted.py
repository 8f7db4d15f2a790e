"""A corpus with planted secrets and personal data, drawn from a seed, and texts that only look like some.

Nothing here looks like a secret until it runs: the values are drawn, so that no scanner of repositories finds
any. Each kind is drawn as its issuer describes it, apart from the shapes that look for it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import string
import uuid
from collections.abc import Callable, Iterator
from typing import NamedTuple

DIGITS, HEX, LOWER, UPPER = string.digits, "0123456789abcdef", string.ascii_lowercase, string.ascii_uppercase
ALNUM = string.ascii_letters + DIGITS
URL64 = ALNUM + "-_"
STD64 = ALNUM + "+/"
Make = Callable[[random.Random], str]


class Planted(NamedTuple):
    """A text, and what stands in it."""

    text: str
    kind: str
    """Empty where nothing does."""
    value: str


def planted(n_each: int, seed: int) -> Iterator[Planted]:
    """So many texts for each kind, each with one value.

    Args:
        n_each: For each way in which a kind is written.
        seed: Of all that is drawn.
    """
    draw = random.Random(seed)
    for kind, make in _KINDS:
        for number in range(n_each):
            value = make(draw)
            contexts = _OWN.get(kind, _OF_TOKENS)
            context = contexts[number % len(contexts)]
            yield Planted(context(value), kind, _inside(kind, value))


def harmless(n_each: int, seed: int) -> Iterator[str]:
    """Texts in which nothing must be found."""
    draw = random.Random(seed)
    for make in _HARMLESS:
        for _ in range(n_each):
            yield make(draw)
    yield from _SAYINGS


def _some(alphabet: str, n: int) -> Make:
    return lambda draw: "".join(draw.choices(alphabet, k=n))


def _after(prefix: str, *rests: Make, by: str = "") -> Make:
    return lambda draw: prefix + by.join(rest(draw) for rest in rests)


def _told(text: str, *drawn: tuple[int, int] | Make) -> Make:
    """A text with numbers between two bounds, or other things that are drawn."""
    return lambda draw: text.format(
        *(draw.randint(*one) if isinstance(one, tuple) else one(draw) for one in drawn)
    )


def _jwt(draw: random.Random) -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    head = {"alg": draw.choice(["HS256", "RS256", "ES256"]), "typ": "JWT"}
    body = {"sub": _some(DIGITS, 10)(draw), "name": _some(LOWER, 8)(draw), "iat": draw.randrange(10**9)}
    return f"{part(head)}.{part(body)}.{_some(URL64, 43)(draw)}"


def _pem(draw: random.Random) -> str:
    what = draw.choice(["RSA ", "EC ", "OPENSSH ", "", "ENCRYPTED "])
    lines = "\n".join(_some(STD64, 64)(draw) for _ in range(draw.randint(3, 25)))
    last = f"{_some(STD64, 22)(draw)}=="
    return f"-----BEGIN {what}PRIVATE KEY-----\n{lines}\n{last}\n-----END {what}PRIVATE KEY-----"


def _credentials(draw: random.Random) -> str:
    scheme = draw.choice(["postgres", "mysql", "redis", "mongodb+srv", "https", "amqp"])
    user = (
        draw.choice(["admin", "app", "", "svc-loader"]) if scheme == "redis" else draw.choice(["joe", "app"])
    )
    password = "".join(draw.choices(ALNUM + "!$%^*-_", k=draw.randint(6, 24)))
    return f"{scheme}://{user}:x{password}@db{draw.randint(1, 99)}.corp.io:5432/main"


def _mail(draw: random.Random) -> str:
    first, last = _some(LOWER, 5)(draw), _some(LOWER, 7)(draw)
    name = draw.choice(
        [f"{first}.{last}", f"{first}{draw.randint(1, 99)}", f"{first}+{last}", f"{first}_{last}", first]
    )
    host = draw.choice(
        ["gmail.com", "corp.io", "mail.uni-ulm.de", "firma.co.uk", "some-shop.travel", "web.de"]
    )
    return f"{name}@{host}"


_AREA, _LAST, _TWO, _BYTE, _DIGIT = (201, 989), (1000, 9999), (10, 99), (0, 255), (0, 9)
_PHONES = (
    *(_told(text, _AREA, _AREA, _LAST) for text in ("+1 {} {} {}", "+1-{}-{}-{}", "({}) {}-{}", "{}-{}-{}")),
    _told("{}.{}.{}", _AREA, _AREA, _LAST),
    _told("+49 151 {}", (10**7, 10**8 - 1)),
    _told("+44 20 {} {}", _LAST, _LAST),
    _told("+33 6 {} {} {} {}", _TWO, _TWO, _TWO, _TWO),
    _told("+4179{}", (10**6, 10**7 - 1)),
    _told("+91 98{} {}", (100, 999), (10000, 99999)),
)
_GROUP = _some("123456789abcdef", 4)
_IPV6 = (
    _told("2a02:" + ":".join(["{}"] * 7), *[_GROUP] * 7),
    _told("2a00:1450:{}::{}", _GROUP, _GROUP),
    _told("fd3{}:{}:{}::1", _some(HEX, 1), _GROUP, _GROUP),
)
_PEOPLE = (
    _some(LOWER, 6),
    _told("{}.{}", _some(LOWER, 4), _some(LOWER, 5)),
    _told("m{}{}", _some(LOWER, 3), (1, 99)),
)
_HOMES = ("/home/{}/project/main.py", "/Users/{}/Desktop", "C:\\Users\\{}\\AppData", "/mnt/c/Users/{}/x")


def _one_of(*ways: Make) -> Make:
    return lambda draw: draw.choice(ways)(draw)


def _ipv4(draw: random.Random) -> str:
    first = draw.choice([5, 8, 10, 34, 52, 77, 91, 100, 131, 172, 192, 217])
    return _told(f"{first}.{{}}.{{}}.{{}}", _BYTE, (3, 255), (1, 254))(draw)


_AWS_SECRET = _some(STD64, 40)
_UUID = lambda draw: str(uuid.UUID(int=draw.getrandbits(128), version=4))  # noqa: E731
_KINDS: tuple[tuple[str, Make], ...] = (
    ("openai-key", _after("sk-", _some(ALNUM, 20), lambda draw: "T3BlbkFJ", _some(ALNUM, 20))),
    (
        "openai-key",
        _after("sk-proj-", _some(URL64, 74), lambda draw: "T3BlbkFJ", _some(URL64, 73), _some(ALNUM, 1)),
    ),
    ("openai-key", _after("sk-svcacct-", _some(URL64, 74), lambda draw: "T3BlbkFJ", _some(ALNUM, 74))),
    ("openai-key", _after("sk-", _some(HEX, 32))),
    ("anthropic-key", _after("sk-ant-api03-", _some(URL64, 93), lambda draw: "AA")),
    ("openrouter-key", _after("sk-or-v1-", _some(HEX, 64))),
    ("langfuse-key", _after("sk-lf-", _UUID)),
    ("aws-key-id", _after("AKIA", _some(UPPER + "234567", 16))),
    ("aws-key-id", _after("ASIA", _some(UPPER + "234567", 16))),
    ("github-token", _after("ghp_", _some(ALNUM, 36))),
    ("github-token", _after("ghs_", _some(ALNUM, 36))),
    ("github-token", _after("github_pat_", _some(ALNUM, 22), _some(ALNUM, 59), by="_")),
    ("gitlab-token", _after("glpat-", _some(URL64, 19), _some(ALNUM, 1))),
    ("slack-token", _after("xoxb-", _some(DIGITS, 12), _some(DIGITS, 12), _some(ALNUM, 24), by="-")),
    ("slack-token", _after("xapp-1-A", _some(UPPER + DIGITS, 10), _some(DIGITS, 13), _some(HEX, 64), by="-")),
    ("google-key", _after("AIza", _some(URL64, 34), _some(ALNUM, 1))),
    ("google-token", _after("ya29.a0", _some(URL64, 120), _some(ALNUM, 1))),
    ("google-secret", _after("GOCSPX-", _some(URL64, 27), _some(ALNUM, 1))),
    ("hugging-face-token", _after("hf_", _some(string.ascii_letters, 34))),
    ("stripe-key", _after("sk_live_", _some(ALNUM, 24))),
    ("stripe-key", _after("rk_test_", _some(ALNUM, 99))),
    ("twilio-key", _after("SK", _some(HEX, 32))),
    ("sendgrid-key", _after("SG.", _some(URL64, 22), _some(URL64, 42), by=".")),
    ("mailgun-key", _after("key-", _some(HEX, 32))),
    ("npm-token", _after("npm_", _some(ALNUM, 36))),
    ("pypi-token", _after("pypi-AgEIcHlwaS5vcmc", _some(URL64, 150), _some(ALNUM, 1))),
    ("docker-token", _after("dckr_pat_", _some(URL64, 26), _some(ALNUM, 1))),
    ("digitalocean-token", _after("dop_v1_", _some(HEX, 64))),
    ("databricks-token", _after("dapi", _some(HEX, 32))),
    ("groq-key", _after("gsk_", _some(ALNUM, 52))),
    ("xai-key", _after("xai-", _some(ALNUM, 80))),
    ("replicate-token", _after("r8_", _some(ALNUM, 37))),
    ("together-key", _after("tgp_v1_", _some(URL64, 42), _some(ALNUM, 1))),
    ("fireworks-key", _after("fw_", _some(ALNUM, 24))),
    ("perplexity-key", _after("pplx-", _some(ALNUM, 48))),
    ("pinecone-key", _after("pcsk_", _some(ALNUM, 6), _some(ALNUM, 63), by="_")),
    ("langsmith-key", _after("lsv2_pt_", _some(HEX, 32), _some(HEX, 10), by="_")),
    ("shopify-token", _after("shpat_", _some(HEX, 32))),
    ("atlassian-token", _after("ATATT3xFfGF0", _some(URL64, 170), _some(HEX, 8), by="=")),
    ("linear-key", _after("lin_api_", _some(ALNUM, 40))),
    ("notion-token", _after("ntn_", _some(DIGITS, 11), _some(ALNUM, 35))),
    ("vault-token", _after("hvs.", _some(URL64, 94), _some(ALNUM, 1))),
    ("grafana-token", _after("glsa_", _some(ALNUM, 32), _some(HEX, 8), by="_")),
    ("new-relic-key", _after("NRAK-", _some(UPPER + DIGITS, 27))),
    ("airtable-token", _after("pat", _some(ALNUM, 14), _some(HEX, 64), by=".")),
    ("figma-token", _after("figd_", _some(URL64, 39), _some(ALNUM, 1))),
    ("postman-key", _after("PMAK-", _some(HEX, 24), _some(HEX, 34), by="-")),
    ("supabase-key", _after("sbp_", _some(HEX, 40))),
    ("brevo-key", _after("xkeysib-", _some(HEX, 64), _some(ALNUM, 16), by="-")),
    ("tavily-key", _after("tvly-", _some(ALNUM, 32))),
    ("telegram-token", _told("{}:AA{}{}", (10**8, 10**10 - 1), _some(URL64, 32), _some(ALNUM, 1))),
    ("discord-token", _told("M{}.{}.{}", _some(ALNUM, 23), _some(URL64, 6), _some(ALNUM, 38))),
    ("jwt", _jwt),
    ("private-key", _pem),
    ("url-credentials", _credentials),
    ("assigned-secret", _AWS_SECRET),
    ("bearer-token", lambda draw: _some(URL64, draw.randint(24, 64))(draw)),
    ("email", _mail),
    ("phone", _one_of(*_PHONES)),
    ("ip-address", _ipv4),
    ("ip-address", _one_of(*_IPV6)),
    ("home-path", _one_of(*(_told(home, _one_of(*_PEOPLE)) for home in _HOMES))),
)
KEY_KINDS = frozenset(kind for kind, _ in _KINDS) - {"email", "phone", "ip-address", "home-path"}


def _nested(value: str) -> str:
    return json.dumps({"id": 7, "arguments": json.dumps({"note": f"use\n{value}\tnow", "n": 1.50})})


_OF_TEXTS: tuple[Callable[[str], str], ...] = (
    "{}".format,
    "It is {}.".format,
    "({})".format,
    "first line\n{}\nlast line".format,
    "`{}`".format,
    '"{}", and more'.format,
    lambda value: json.dumps({"said": value, "n": 3}),
    _nested,
    "Grüße, {} – ok".format,
    "a=1;{};b=2".format,
)
_OF_TOKENS: tuple[Callable[[str], str], ...] = (
    *_OF_TEXTS,
    "export SERVICE={}".format,
    "client = Client(token='{}')".format,
    "curl -H 'x-auth: {}' https://api.corp.io/v1".format,
    "https://api.corp.io/v1/run?k={}&page=2".format,
    "- value: {}\n- other: 1".format,
    "Traceback: bad token {}: refused".format,
    "<k>{}</k>".format,
    'cut off: {{"note": "use\\n{}'.format,
)
_OWN: dict[str, tuple[Callable[[str], str], ...]] = {
    "assigned-secret": (
        "aws_secret_access_key = {}".format,
        "AWS_SECRET_ACCESS_KEY={}\n".format,
        "client_secret: '{}'".format,
        lambda value: json.dumps({"api_key": value}),
        lambda value: json.dumps({"x": json.dumps({"password": value})}),
        'password="{}"'.format,
    ),
    "bearer-token": ("Authorization: Bearer {}".format, "curl -H 'authorization: bearer {}' x".format),
    "email": (*_OF_TEXTS, "From: Joe <{}>".format, "mailto:{}".format, "cc {}; thanks".format),
    "phone": (*_OF_TEXTS[:4], _OF_TEXTS[6], _nested, "Call me at {} today".format, "Phone: {}".format),
    "ip-address": (*_OF_TEXTS[:4], _OF_TEXTS[6], _nested, "from {} port 22".format, "http://{}/".format),
    "home-path": (*_OF_TEXTS, 'File "{}", line 3'.format, "cd {}".format, "path={}".format),
    "private-key": (*_OF_TEXTS[:4], _OF_TEXTS[6], _nested),
}


def _inside(kind: str, value: str) -> str:
    """What of a drawn value is the secret of it."""
    if kind == "url-credentials":
        return value.partition("://")[2].rpartition("@")[0]
    if kind == "home-path":
        return (
            value.replace("\\", "/").partition("sers/" if "sers" in value else "home/")[2].partition("/")[0]
        )
    return value


def _picture(draw: random.Random) -> str:
    return f"data:image/png;base64,{base64.b64encode(draw.randbytes(9000)).decode()}"


def _hash(draw: random.Random) -> str:
    name = draw.choice(["md5", "sha1", "sha256", "sha512"])
    found = hashlib.new(name, draw.randbytes(8), usedforsecurity=False).hexdigest()
    return draw.choice(
        [f"{name}:{found}", found, f"commit {found}", f"index {found[:7]}..{found[7:14]} 100644"]
    )


_HARMLESS: tuple[Make, ...] = (
    _picture,
    _hash,
    _hash,
    _told("id={}", _UUID),
    _told("call_{} toolu_01{} chatcmpl-{}", _some(ALNUM, 24), _some(ALNUM, 22), _some(ALNUM, 29)),
    _told("file-{} resp_{} ft:gpt:org::{}", _some(ALNUM, 22), _some(HEX, 48), _some(ALNUM, 8)),
    _told("version {}.{}.{}.{}", (1, 20), (0, 99), (0, 99), (0, 99)),
    _told("numpy=={}.{}.{}.{}", (1, 2), (0, 30), _DIGIT, _DIGIT),
    _told("lib-{}.{}.{}.{}.tar.gz", (1, 9), _DIGIT, _DIGIT, _DIGIT),
    _told("Chrome/{}.0.{}.{} Safari/537.36", (90, 140), (1, 250), (1, 250)),
    _told("2026-{:02}-17 {:02}:{:02}:17", (1, 12), (0, 23), (0, 59)),
    lambda draw: f"at {draw.randint(10**12, 10**13)} ms, {draw.random():.17f} of {draw.random() * 1e6:.3f}",
    _told(":".join(["{:02x}"] * 6), *[_BYTE] * 6),
    _told("order {}-{}-{}", _LAST, _LAST, _LAST),
    _told("tile ({}, {}), 1-{}-2", (-90, 90), (-180, 180), (200, 900)),
    _told("ISBN 978-3-{}-{}-{}", _TWO, (100000, 999999), _DIGIT),
    _told("icon@{}x.png lodash@{}.17.{}", (2, 3), (1, 9), (0, 30)),
    _told("ssh-rsa AAAAB3NzaC1yc2E{} deploy", _some(STD64, 200)),
    _told("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----", _some(STD64, 64)),
    lambda draw: json.dumps(
        {"integrity": f"sha512-{_some(STD64, 86)(draw)}==", "password": None, "token": draw.randint(1, 9)}
    ),
    lambda draw: f"sk-{'-'.join(_some(LOWER, 6)(draw) for _ in range(4))}",
)
_SAYINGS = (
    'api_key = os.environ["OPENAI_API_KEY"]',
    "password = getpass.getpass('Password: ')",
    "secret_key: ${SECRET_KEY_OF_THE_SERVICE}",
    'api_key="YOUR_API_KEY_GOES_HERE_1234"',
    "access_token = response.json()['access_token']",
    "client_secret=settings.oauth.client_secret_v2",
    "password: correct-horse-battery-staple",
    "task-oriented-dialogue-systems-2024-survey",
    "sk-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "ghp_" + "x" * 36,
    "AKIA" + "IOSFODNN7EXAMPLE",
    "Authorization: Bearer <token>",
    "Bearer authentication-is-required-here",
    "the bearer of-this-letter-is-a-friend-of-mine",
    "postgres://localhost:5432/main",
    "https://user:password@host.corp.io/x",
    "redis://${USER}:${PASS}@cache:6379",
    "https://www.corp.io/@someone:1234/post",
    "git@github.com:org/repo.git",
    "someone@example.com and a@b.test",
    "@pytest.mark.parametrize('x', [1])",
    "x = a @ b.T",
    "/home/user/app and /Users/runner/work and C:\\Users\\Public\\x",
    "https://corp.io/home/news and https://corp.io/Users/list",
    "GET /api/home/overview",
    "listen 127.0.0.1:8080, 0.0.0.0, 255.255.255.0, ::1",
    "see section 1.2.3.4 and v4.3.2.1",
    "x[1::2] and std::vector<std::string> and a::b::c::d",
    "555-0123 is no number, nor is 1-2-3",
    "+1 for this, +12 points, 12+34567890",
    "C = A +10000000 -20000000",
    "pip install sk-learn-extra-models-and-more",
    "npm_config_registry_of_the_whole_company_name",
    "hf_hub_download_with_resume_and_retries_on_error",
    "fw_update_was_done_by_the_technician",
    "the password is hunter2",
)
