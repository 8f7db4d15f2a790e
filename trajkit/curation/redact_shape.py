"""What secrets and personal data look like: one shape for each kind, after its issuer's own description.

A shape has two patterns. The candidate is what every value of the kind contains, in the syntax of RE2, so
that whole columns are searched at the speed of memory. The pattern says exactly what is a value, and is asked
only near a candidate. What no pattern can say (that a JWT has a header, an address is nobody's) says `holds`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from trajkit.curation.redact_check import (
    is_address,
    is_credentials,
    is_jwt,
    is_mail,
    is_person,
    is_phone,
    is_random,
    is_very_random,
)

VALUE = "value"
"""Name of the group that is replaced; a pattern without one is replaced whole."""


class Shape(NamedTuple):
    """How a kind of value is found."""

    kind: str
    """What it is, such as `github-token`; empty where `kind_of` tells."""
    pattern: re.Pattern[str]
    """What it looks like; `value` is the part that is replaced."""
    candidate: str
    """What each of them contains, for RE2: no anchors, no look-around."""
    holds: Callable[[re.Match[str]], bool] = lambda found: True
    """Whether what looks like one is one."""
    reach: int = 80
    """Characters that the pattern may need on either side of its candidate and the rest of its word."""


# a token begins where no other word does; texts that were cut out of JSON or code may have `\n` before it
_BEGIN = r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrtbf]))"
_BEGIN_PLAIN = r"(?:(?<![A-Za-z0-9_+/-])|(?<=\\[nrtbf]))"
_END = r"(?![A-Za-z0-9_-])"
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"

# kind, prefix, what follows it, each as RE2 and re alike read it
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
    ("openai-key", "sk-", r"[\w-]{20,}"),  # also of those who took its shape over; after all others
)
# of these a long text of base64 has some by chance: nothing of its alphabet may stand before them
_BARE = ("aws-key-id", "google-key", "twilio-key", "databricks-token", "airtable-token", "atlassian-token")
_FIRST = re.compile(r"\[[^]]+\]")
_PREFIX_KINDS = tuple((kind, re.compile(f"{prefix}{rest}", re.ASCII)) for kind, prefix, rest in _PREFIXED)


def kind_of(value: str) -> str:
    """Which service a token is of, by how it begins."""
    return next(kind for kind, pattern in _PREFIX_KINDS if pattern.fullmatch(value))


def _prefixed(*, bare: bool) -> Shape:
    """One shape for all of them: a text is read once, not fifty times."""
    mine = [(prefix, rest) for kind, prefix, rest in _PREFIXED if (kind in _BARE) == bare]
    whole = "|".join(f"{prefix}{rest}" for prefix, rest in mine)
    begin = _BEGIN_PLAIN if bare else _BEGIN
    candidates = (f"{prefix}{_begun(rest)}" for prefix, rest in mine)
    return Shape(
        "", re.compile(f"{begin}(?:{whole}){_END}", re.ASCII), "|".join(candidates), is_random, reach=300
    )


def _begun(rest: str) -> str:
    """Its first ten characters, or as many as it takes to tell it from words."""
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
"""The end of a name that says what its value is."""

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
"""Every shape, in the order in which they win where two overlap."""

KINDS = tuple(
    dict.fromkeys([*(kind for kind, *_ in _PREFIXED), *(shape.kind for shape in (*_IN_CONTEXT, *_OF_PEOPLE))])
)
"""Every kind."""
