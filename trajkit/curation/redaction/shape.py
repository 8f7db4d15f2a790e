"""Patterns of secrets and personal data: one shape for each kind, with checks that confirm some of them.

A shape has two patterns. Every value of its kind contains the candidate, which is in the syntax of RE2, so
that whole columns are searched at the speed of memory. The pattern matches exactly the value, and is tried
only near a candidate. `holds` tests what a pattern cannot, such as the header of a JWT or a sample address.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

_LEAST_BITS = 2.6
"""Entropy per character. Random hex has 3.5 or more at 32 characters, `xxxx-xxxx` almost none."""
_MORE_BITS = 3.2
_SAMPLE = re.compile(
    r"example|your[_-]|x{6}|placeholder|changeme|redacted|dummy|sample|1234567890|abcdefgh|\.\.\.", re.I
)
_SEQUENCE = "0123456789abcdefghijklmnopqrstuvwxyz"
# RFC 2606 and 6761: reserved domains
_NOBODYS = re.compile(
    r"(?:^|\.)(?:example\.(?:com|org|net)|[\w-]+\.(?:example|test|invalid|localhost|local|internal))$", re.I
)
_FILES = re.compile(
    "png|jpe?g|gif|svg|webp|ico|bmp|m?js|tsx?|jsx|s?css|pyc?|rb|go|rs|java|kt|cpp|hpp|md|txt|json|ya?ml|toml"
    "|lock|html?|xml|csv|log|zip|tar|gz|whl|jar|exe|dll|so",
    re.I,
)
_SERVICES = ("git", "hg", "svn")
# home folders that exist on many machines, or are placeholders
_NOT_PEOPLE = re.compile(
    "users?|user_?name|your[_-]?name|name|me|you|some(?:one|body)|root|admin|administrator|ubuntu|debian"
    "|ec2-user|vagrant|runner|runneradmin|node|jovyan|vscode|codespace|coder|gitpod|circleci|jenkins|travis"
    "|docker|app|agent|worker|sandbox|oai|openhands|linuxbrew|public|default|shared|guest|test|nobody|www"
    r"|www-data|postgres|pi|kali|index|default\.aspx",
    re.I,
)
_VERSION = re.compile(
    r"(?:\bversion|\bver|\brelease|\bbuild|\brev|\bv|==|[<>~^!]=|section|chapter|clause|§|\boid|firmware"
    r"|\bpatch|\bupgrade[sd]? (?:to|from)|\bbump(?:s|ed)?)[\"'\s:=.]{0,4}$",
    re.I,
)
_BEFORE = 16
# identifiers in code: `settings.oauth.secret_v2`, `some-words-with-2-numbers`
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|[a-z_][a-z0-9_]*(?:[./-][a-z0-9_]+)*")
_PRODUCT = re.compile(r"[A-Za-z][\w+-]*[/ ]$")
# country codes of ITU-T E.164, by their first digits
_COUNTRIES = re.compile(
    r"1|7|2(?:0|7|1[1-368]|[2346]\d|5\d|9[01789])|3(?:[0-469]|5\d|7\d|8[0-35-79])|4(?:[013-9]|2[013])"
    r"|5(?:[1-8]|0\d|9\d)|6(?:[0-6]|7\d|8\d|9\d)|8(?:[1246]|0[08]|5\d|7[08]|8[0-368])|9(?:[0-58]|6\d|7\d|9\d)"
)
_SAMPLES = tuple(map(ipaddress.ip_network, ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")))


def is_random(found: re.Match[str]) -> bool:
    """Whether a token looks random, and is not a word or a sample."""
    value = _value(found)
    body = value[-32:] if len(value) > 36 else value[4:]
    if _bits(value) < _LEAST_BITS or _SAMPLE.search(value) or _SEQUENCE[:10] in value.lower():
        return False
    return value.isupper() or any(map(str.isdigit, value)) or _n_turns(body) >= 4


def is_very_random(found: re.Match[str]) -> bool:
    """Whether a value that only its name marks as a secret looks random: names and calls in code do not."""
    value = _value(found)
    if not is_random(found) or _bits(value) < _MORE_BITS:
        return False
    has = (any(map(test, value)) for test in (str.isdigit, str.isalpha))
    return all(has) and not _NAME.fullmatch(value)


def is_jwt(found: re.Match[str]) -> bool:
    """Whether the header names the signing algorithm."""
    head = found[0].partition(".")[0]
    try:
        header = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
    except (binascii.Error, ValueError):
        return False
    return isinstance(header, dict) and "alg" in header


def is_credentials(found: re.Match[str]) -> bool:
    """Whether user and password are values, not placeholders."""
    _, _, password = _value(found).partition(":")
    if re.fullmatch(r"[$%{(*<].*|.*[}>)]|x{3,}", password):
        return False
    return password.lower() not in ("password", "pass", "pw", "pwd", "passwd", "secret", "token")


def is_mail(found: re.Match[str]) -> bool:
    """Whether a mail address may belong to somebody."""
    name, _, host = found[0].rpartition("@")
    is_file = _FILES.fullmatch(host.rpartition(".")[2]) is not None
    before = found.string[max(0, found.start() - 60) : found.start()]
    is_login = re.search(r"://[^\s/@]*$", before) is not None
    return not (is_file or is_login or name.lower() in _SERVICES or _NOBODYS.search(host))


def is_phone(found: re.Match[str]) -> bool:
    """Whether a number has the length of a phone number, and an existing country code."""
    value = _value(found)
    digits = re.sub(r"\D", "", value)
    if not 7 <= len(digits) <= 15 or len(set(digits)) < 3:
        return False
    if value.startswith("+"):
        return len(digits) >= 9 and _COUNTRIES.match(digits) is not None
    # 555-01xx is reserved for fiction
    return not re.fullmatch(r"1?\d{3}55501\d\d", digits)


def is_address(found: re.Match[str]) -> bool:
    """Whether it is a machine's address: no version number, mask, loopback or sample."""
    try:
        address = ipaddress.ip_address(found[0])
    except ValueError:
        return False
    if address.version == 6:  # a slice in Python may look like one
        groups = [group for group in found[0].split(":") if group]
        is_some = len(groups) >= 3 and any(map(str.isdigit, found[0]))
        return is_some and not (
            address.is_loopback or address.is_link_local or found[0].lower().startswith("2001:db8")
        )
    if address.is_loopback or address.is_unspecified or address.is_link_local or address.is_multicast:
        return False
    if address.packed[0] in (0, 255) or any(address in network for network in _SAMPLES):
        return False
    before = found.string[max(0, found.start() - _BEFORE) : found.start()]
    return not (_VERSION.search(before) or (_PRODUCT.search(before) and before.endswith("/")))


def is_person(found: re.Match[str]) -> bool:
    """Whether a home folder has a person's name."""
    return _NOT_PEOPLE.fullmatch(_value(found).rstrip(".")) is None


def _value(found: re.Match[str]) -> str:
    return found["value"] if "value" in found.re.groupindex else found[0]


def _bits(text: str) -> float:
    """Return the Shannon entropy per character."""
    n = len(text)
    return -sum(k / n * math.log2(k / n) for k in Counter(text).values())


def _n_turns(text: str) -> int:
    """Count changes between upper and lower case."""
    pairs = itertools.pairwise(text)
    return sum(a.isupper() != b.isupper() for a, b in pairs if a.isalpha() and b.isalpha())


VALUE = "value"
"""Name of the group that is replaced; without it the whole match is replaced."""


class Shape(NamedTuple):
    """How to find a kind of value."""

    kind: str
    """Name such as `github-token`; empty if `kind_of` decides."""
    pattern: re.Pattern[str]
    """Matches the value; only the group `value` is replaced."""
    candidate: str
    """A pattern that each value contains, for RE2: no anchors, no look-around."""
    holds: Callable[[re.Match[str]], bool] = lambda found: True
    """Confirms a match."""
    reach: int = 80
    """Characters that the pattern may need on either side of the candidate and the rest of its word."""


# a token begins where no other word ends; strings cut out of JSON or code may have `\n` before it
_BEGIN = r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrtbf]))"
_BEGIN_PLAIN = r"(?:(?<![A-Za-z0-9_+/-])|(?<=\\[nrtbf]))"
_END = r"(?![A-Za-z0-9_-])"
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"

# kind, prefix, and pattern of the rest; RE2 and re agree on each
_PREFIXED = (
    ("anthropic-key", "sk-ant-", r"[\w-]{24,}"),
    ("openrouter-key", "sk-or-v1-", "[0-9a-f]{64}"),
    ("langfuse-key", "[sp]k-lf-", _UUID),
    ("aws-key-id", "(?:AKIA|ASIA|ABIA|ACCA)", "[A-Z0-9]{16}"),
    ("github-token", "gh[pousr]_", "[A-Za-z0-9]{36,255}"),
    ("github-token", "github_pat_", "[A-Za-z0-9]{22}_[A-Za-z0-9]{59}"),
    ("gitlab-token", "gl(?:pat|dt|rt|soat|ptt|cbt|ft|agent)-", r"[\w-]{20,}"),
    ("slack-token", "xox[abeoprs]-", "[A-Za-z0-9-]{10,}"),
    ("slack-token", "xapp-", "[A-Z0-9-]{12,}-[0-9]+-[a-z0-9]+"),
    ("google-key", "AIza", r"[\w-]{35}"),
    ("google-token", r"ya29\.", r"[\w-]{20,}(?:\.[\w-]+)*"),
    ("google-secret", "GOCSPX-", r"[\w-]{28}"),
    ("hugging-face-token", "hf_", "[A-Za-z0-9]{30,40}"),
    ("hugging-face-token", "api_org_", "[A-Za-z0-9]{30,40}"),
    ("stripe-key", "[sr]k_(?:live|test)_", "[A-Za-z0-9]{16,}"),
    ("stripe-key", "whsec_", "[A-Za-z0-9+/]{24,}=*"),
    ("twilio-key", "SK", "[0-9a-f]{32}"),
    ("sendgrid-key", r"SG\.", r"[\w-]{16,32}\.[\w-]{16,64}"),
    ("mailgun-key", "key-", "[0-9a-f]{32}"),
    ("npm-token", "npm_", "[A-Za-z0-9]{36}"),
    ("pypi-token", "pypi-", r"[\w-]{50,}"),
    ("docker-token", "dckr_(?:pat|oat)_", r"[\w-]{20,}"),
    ("digitalocean-token", "do[opr]_v1_", "[0-9a-f]{64}"),
    ("databricks-token", "dapi", "[0-9a-f]{32}(?:-[0-9])?"),
    ("groq-key", "gsk_", "[A-Za-z0-9]{40,}"),
    ("xai-key", "xai-", "[A-Za-z0-9]{60,}"),
    ("replicate-token", "r8_", "[A-Za-z0-9]{37}"),
    ("together-key", "tgp_v1_", r"[\w-]{30,}"),
    ("fireworks-key", "fw_", "[A-Za-z0-9]{20,}"),
    ("perplexity-key", "pplx-", "[A-Za-z0-9]{40,}"),
    ("pinecone-key", "pcsk_", "[A-Za-z0-9_]{40,}"),
    ("langsmith-key", "lsv2_(?:pt|sk)_", "[0-9a-f]{32}_[0-9a-f]{10}"),
    ("wandb-key", "wandb_v[0-9]_", r"[\w-]{40,}"),
    ("shopify-token", "shp(?:at|ca|pa|ss)_", "[0-9a-fA-F]{32}"),
    ("atlassian-token", "ATATT3", "[A-Za-z0-9_=-]{100,}"),
    ("linear-key", "lin_(?:api|oauth)_", "[A-Za-z0-9]{32,}"),
    ("notion-token", "ntn_", "[A-Za-z0-9]{40,}"),
    ("vault-token", r"hv[sbr]\.", r"[\w-]{24,}"),
    ("sentry-token", "sntry[su]_", "[A-Za-z0-9_+/=-]{40,}"),
    ("grafana-token", "glsa_", "[A-Za-z0-9]{32}_[0-9a-f]{8}"),
    ("new-relic-key", "NRAK-", "[A-Z0-9]{27}"),
    ("airtable-token", "pat", r"[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    ("figma-token", "figd_", r"[\w-]{40}"),
    ("postman-key", "PMAK-", "[0-9a-f]{24}-[0-9a-f]{34}"),
    ("age-key", "AGE-SECRET-KEY-1", "[02-9AC-HJ-NP-Z]{58}"),
    ("supabase-key", "sbp_", "[0-9a-f]{40}"),
    ("planetscale-token", "pscale_(?:tkn|pw|oauth)_", r"[\w.-]{32,}"),
    ("fly-token", "fm[12][ar]?_", "[A-Za-z0-9+/]{40,}=*"),
    ("brevo-key", "xkeysib-", "[0-9a-f]{64}-[A-Za-z0-9]{16}"),
    ("square-token", "sq0(?:atp|csp)-", r"[\w-]{22,43}"),
    ("tavily-key", "tvly-", "(?:dev-|prod-)?[A-Za-z0-9]{20,}"),
    ("openai-key", "sk-", r"[\w-]{20,}"),  # also of services that use its prefix; after all others
)
# a long base64 text contains some of these by chance: no character of its alphabet may stand before them
_BARE = ("aws-key-id", "google-key", "twilio-key", "databricks-token", "airtable-token", "atlassian-token")
_FIRST = re.compile(r"\[[^]]+\]")
_PREFIX_KINDS = tuple((kind, re.compile(f"{prefix}{rest}", re.ASCII)) for kind, prefix, rest in _PREFIXED)


def kind_of(value: str) -> str:
    """Return the kind of a token from its prefix."""
    return next(kind for kind, pattern in _PREFIX_KINDS if pattern.fullmatch(value))


def _prefixed(*, bare: bool) -> Shape:
    """Combine the prefixed kinds in one shape: a text is read once, not fifty times."""
    mine = [(prefix, rest) for kind, prefix, rest in _PREFIXED if (kind in _BARE) == bare]
    whole = "|".join(f"{prefix}{rest}" for prefix, rest in mine)
    begin = _BEGIN_PLAIN if bare else _BEGIN
    candidates = (f"{prefix}{_begun(rest)}" for prefix, rest in mine)
    return Shape(
        "", re.compile(f"{begin}(?:{whole}){_END}", re.ASCII), "|".join(candidates), is_random, reach=300
    )


def _begun(rest: str) -> str:
    """Return a pattern of its first ten characters, or of as many as distinguish it from words."""
    if rest.startswith("(") or r"\." in rest:
        return rest
    found = _FIRST.match(rest)
    return f"{found[0]}{{10}}" if found else rest


_NAMES = (
    "(?:api|access|auth|client|secret|private|bot|app|refresh|session|signing|master|encryption)"
    "[_-]?(?:access[_-]?)?(?:key|token|secret)|passwd|password|passphrase"
)
_PHONES = "(?:tel|telephone|phone|mobile|fax|whatsapp)"
TELLING = re.compile(rf"(?i:(?:{_NAMES})|\b{_PHONES}(?:[ _]?(?:number|no))?)$", re.ASCII)
"""Matches the end of a name that tells the kind of its value."""

_IN_CONTEXT = (
    Shape(
        "private-key",
        re.compile(
            r"-----BEGIN (?P<what>[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?)-----"
            r"(?:(?:(?!-----BEGIN )[\s\S]){0,20000}?-----END (?P=what)-----|[A-Za-z0-9+/=\s\\]*)"
        ),
        "-----BEGIN [A-Z0-9 ]*PRIVATE KEY",
        reach=20_100,
    ),
    Shape(
        "jwt",
        re.compile(r"(?:(?<![\w.-])|(?<=\\[nrtbf]))eyJ[\w-]{8,}\.eyJ[\w-]{4,}\.[\w-]{8,}(?![\w-])", re.ASCII),
        r"eyJ[A-Za-z0-9_-]{8,}\.eyJ",
        is_jwt,
    ),
    Shape(
        "url-credentials",
        re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,20}://(?P<value>[^\s/?#@:\"'<>`\[\]]*:[^\s/?#\"'<>`]+)@[\w\[]"),
        r"://[^\s/?#\"<>]+@",
        is_credentials,
    ),
    Shape(
        "slack-webhook",
        re.compile(r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<value>[A-Za-z0-9+/]{20,})"),
        r"hooks\.slack\.com/",
    ),
    Shape(
        "discord-webhook",
        re.compile(r"discord(?:app)?\.com/api/webhooks/(?P<value>[0-9]{15,}/[\w-]{40,})", re.ASCII),
        r"/api/webhooks/[0-9]",
    ),
    Shape(
        "discord-token",
        re.compile(rf"{_BEGIN_PLAIN}[MNO][\w-]{{23,25}}\.[\w-]{{6}}\.[\w-]{{27,38}}{_END}", re.ASCII),
        r"[A-Za-z0-9_-]\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27}",
        is_random,
    ),
    Shape(
        "telegram-token",
        re.compile(rf"{_BEGIN_PLAIN}[0-9]{{8,10}}:AA[\w-]{{33}}{_END}", re.ASCII),
        "[0-9]:AA[A-Za-z0-9_-]{10}",
        is_random,
    ),
    Shape(
        "azure-key",
        re.compile(r"(?:AccountKey|SharedAccessKey)=(?P<value>[A-Za-z0-9+/]{42,}={0,2})"),
        "(?:AccountKey|SharedAccessKey)=",
        is_random,
    ),
    Shape("azure-signature", re.compile(r"[?&;]sig=(?P<value>[A-Za-z0-9%+/=]{40,})"), "sig=[A-Za-z0-9%+/]"),
    Shape(
        "bearer-token",
        re.compile(r"(?i:bearer|authorization:\s*(?:token|basic))\s+(?P<value>[\w.~+/-]{20,}=*)", re.ASCII),
        r"(?i:bearer|authorization:\s*(?:token|basic))\s+[A-Za-z0-9._~+/-]{10}",
        is_random,
    ),
    Shape(
        "assigned-secret",
        re.compile(
            rf"(?i:{_NAMES})\\?[\"']?\s*(?::|=>?|:=)\s*\\?[\"']?(?P<value>[\w.~+/-]{{16,}}=*)(?![\w(])",
            re.ASCII,
        ),
        rf"(?i:{_NAMES})",
        is_very_random,
    ),
)

_OF_PEOPLE = (
    Shape(
        "email",
        re.compile(
            r"(?:(?<![\w.+-])|(?<=\\[nrtbf]))"
            r"[\w+](?:[\w.+'-]{0,62}[\w+-])?@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z]{2,24}(?![\w@])"
        ),
        r"@[A-Za-z0-9-]+\.[A-Za-z0-9]",
        is_mail,
    ),
    Shape(
        "phone",
        re.compile(
            r"(?:(?<![\w.,/+=#&%-])|(?<=\\[nrtbf]))(?:"
            r"\+[1-9][0-9]{0,2}(?:[ .-]?(?:\([0-9]{1,5}\)|[0-9]{1,5})){2,6}|"
            r"\(?[2-9][0-9]{2}\)[ .-]?[2-9][0-9]{2}[ .-][0-9]{4}|"
            r"(?:1[ .-])?[2-9][0-9]{2}(?P<gap>[ .-])[2-9][0-9]{2}(?P=gap)[0-9]{4}"
            r")(?![\w/]|[.,:-][0-9])"
        ),
        r"\+[1-9][0-9 .()-]{6}|[0-9]\)?[ .-]?[2-9][0-9]{2}[ .-][0-9]{4}",
        is_phone,
    ),
    Shape(
        "phone",
        re.compile(
            rf"(?i:\b{_PHONES}(?:[ _]?(?:number|no|nr|at))?)\\?[\"']?"
            r"\.?\s*(?:[:=]|is)?\s*\\?[\"']?(?P<value>\+?\(?[0-9](?:[ ./()-]{0,2}[0-9]){6,14})(?![\w])"
        ),
        r"(?i:tel|phone|mobile|fax|whatsapp)[A-Za-z _.\\\"':=]{0,16}[+(]?[0-9]",
        is_phone,
    ),
    Shape(
        "ip-address",
        re.compile(r"(?:(?<![\w.-])|(?<=\\[nrtbf]))[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![\w-]|\.[\w])"),
        r"[0-9]\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]",
        is_address,
    ),
    Shape(
        "ip-address",
        re.compile(r"(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){3,7}[0-9A-Fa-f]{0,4}(?![\w:])"),
        "[0-9A-Fa-f]{1,4}:(?:[0-9A-Fa-f]{0,4}:){2}[0-9A-Fa-f:]",
        is_address,
    ),
    Shape(
        "home-path",
        re.compile(
            r"(?:(?<![\w.})\]/-])(?:/mnt/[a-z])?/(?:home|Users|export/home)/|file:///(?:home|Users)/"
            r"|(?<![A-Za-z0-9])[A-Za-z]:(?:\\{1,4}|/)(?:Users|Documents and Settings)(?:\\{1,4}|/)"
            r"|(?<=\\[nrtbf])/(?:home|Users)/)"
            r"(?P<value>[A-Za-z_][\w.-]{0,62})"
        ),
        r"/home/[A-Za-z_]|[/\\]Users[/\\]+[A-Za-z_]|Documents and Settings[/\\]+[A-Za-z_]",
        is_person,
    ),
)

SHAPES = (_prefixed(bare=True), _prefixed(bare=False), *_IN_CONTEXT, *_OF_PEOPLE)
"""Every shape. Where two matches overlap, the earlier shape wins."""

KINDS = tuple(
    dict.fromkeys([*(kind for kind, *_ in _PREFIXED), *(shape.kind for shape in (*_IN_CONTEXT, *_OF_PEOPLE))])
)
"""Every kind."""

PERSONAL = frozenset(shape.kind for shape in _OF_PEOPLE)
"""The kinds that identify a person, and are not keys."""
