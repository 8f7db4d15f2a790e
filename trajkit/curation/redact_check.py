"""What no pattern can say of something that looks like a secret, an address or a name."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import itertools
import json
import math
import re
from collections import Counter

_LEAST_BITS = 2.6
"""Per character; random hex has 3.5 or more at 32 characters, and `xxxx-xxxx` next to nothing."""
_MORE_BITS = 3.2
_SAMPLE = re.compile(
    r"example|your[_-]|x{6}|placeholder|changeme|redacted|dummy|sample|1234567890|abcdefgh|\.\.\.", re.I
)
_SEQUENCE = "0123456789abcdefghijklmnopqrstuvwxyz"
# RFC 2606 and 6761: addresses that nobody can have
_NOBODYS = re.compile(
    r"(?:^|\.)(?:example\.(?:com|org|net)|[\w-]+\.(?:example|test|invalid|localhost|local|internal))$", re.I
)
_FILES = re.compile(
    "png|jpe?g|gif|svg|webp|ico|bmp|m?js|tsx?|jsx|s?css|pyc?|rb|go|rs|java|kt|cpp|hpp|md|txt|json|ya?ml|toml"
    "|lock|html?|xml|csv|log|zip|tar|gz|whl|jar|exe|dll|so",
    re.I,
)
_SERVICES = ("git", "hg", "svn")
# names of homes that are the same on many machines, or stand for a name
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
# what code calls something: `settings.oauth.secret_v2`, `some-words-with-2-numbers`
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|[a-z_][a-z0-9_]*(?:[./-][a-z0-9_]+)*")
_PRODUCT = re.compile(r"[A-Za-z][\w+-]*[/ ]$")
# country codes of ITU-T E.164, by their first digits
_COUNTRIES = re.compile(
    r"1|7|2(?:0|7|1[1-368]|[2346]\d|5\d|9[01789])|3(?:[0-469]|5\d|7\d|8[0-35-79])|4(?:[013-9]|2[013])"
    r"|5(?:[1-8]|0\d|9\d)|6(?:[0-6]|7\d|8\d|9\d)|8(?:[1246]|0[08]|5\d|7[08]|8[0-368])|9(?:[0-58]|6\d|7\d|9\d)"
)


def is_random(found: re.Match[str]) -> bool:
    """Whether a token was drawn, and is not a word or a sample of one."""
    value = _value(found)
    body = value[-32:] if len(value) > 36 else value[4:]
    if _bits(value) < _LEAST_BITS or _SAMPLE.search(value) or _SEQUENCE[:10] in value.lower():
        return False
    return value.isupper() or any(map(str.isdigit, value)) or _n_turns(body) >= 4


def is_very_random(found: re.Match[str]) -> bool:
    """The same for a value that only its name says to be a secret: code has names and calls there too."""
    value = _value(found)
    if not is_random(found) or _bits(value) < _MORE_BITS:
        return False
    has = (any(map(test, value)) for test in (str.isdigit, str.isalpha))
    return all(has) and not _NAME.fullmatch(value)


def is_jwt(found: re.Match[str]) -> bool:
    """Whether the header says how it is signed."""
    head = found[0].partition(".")[0]
    try:
        said = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
    except (binascii.Error, ValueError):
        return False
    return isinstance(said, dict) and "alg" in said


def is_credentials(found: re.Match[str]) -> bool:
    """Whether a user and a password are given, and not a place for them."""
    _, _, password = _value(found).partition(":")
    if re.fullmatch(r"[$%{(*<].*|.*[}>)]|x{3,}", password):
        return False
    return password.lower() not in ("password", "pass", "pw", "pwd", "passwd", "secret", "token")


def is_mail(found: re.Match[str]) -> bool:
    """Whether somebody may have this address."""
    name, _, host = found[0].rpartition("@")
    is_file = _FILES.fullmatch(host.rpartition(".")[2]) is not None
    before = found.string[max(0, found.start() - 60) : found.start()]
    is_login = re.search(r"://[^\s/@]*$", before) is not None
    return not (is_file or is_login or name.lower() in _SERVICES or _NOBODYS.search(host))


def is_phone(found: re.Match[str]) -> bool:
    """Whether it has as many digits as a number has, and a country that there is."""
    value = _value(found)
    digits = re.sub(r"\D", "", value)
    if not 7 <= len(digits) <= 15 or len(set(digits)) < 3:
        return False
    if value.startswith("+"):
        return len(digits) >= 9 and _COUNTRIES.match(digits) is not None
    # 555-01xx is for films
    return not re.fullmatch(r"1?\d{3}55501\d\d", digits)


def is_address(found: re.Match[str]) -> bool:
    """Whether it is the address of some machine: no version, no mask, no loopback, no sample."""
    try:
        address = ipaddress.ip_address(found[0])
    except ValueError:
        return False
    if address.version == 6:  # a slice of Python's is one as well
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
    """Whether a home is somebody's, and not the one of every machine."""
    return _NOT_PEOPLE.fullmatch(_value(found).rstrip(".")) is None


_SAMPLES = tuple(map(ipaddress.ip_network, ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")))


def _value(found: re.Match[str]) -> str:
    return found["value"] if "value" in found.re.groupindex else found[0]


def _bits(text: str) -> float:
    """Shannon's entropy of its characters, per character."""
    n = len(text)
    return -sum(k / n * math.log2(k / n) for k in Counter(text).values())


def _n_turns(text: str) -> int:
    """How often upper and lower case follow each other."""
    pairs = itertools.pairwise(text)
    return sum(a.isupper() != b.isupper() for a, b in pairs if a.isalpha() and b.isalpha())
