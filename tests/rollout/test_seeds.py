import pytest

from trajkit.errors import RequestError
from trajkit.rollout.seeds import derived_seed, derived_share, seed_range


def test_a_range_is_half_open():
    assert list(seed_range(seeds="200:203")) == [200, 201, 202]


def test_a_number_of_episodes_counts_from_the_first_seed():
    assert seed_range(episodes=200, seed=7) == range(7, 207)
    assert seed_range(seed=3) == range(3, 23)
    assert seed_range() == range(20)


@pytest.mark.parametrize(
    "text", ["", "5", "5:", ":5", "a:b", "1:2:3", "-1:3", "3:3", "9:2", "1.0:2", "0:99999999999999999999"]
)
def test_a_range_that_is_none_is_refused(text):
    with pytest.raises(RequestError) as caught:
        seed_range(seeds=text)
    assert caught.value.hint


def test_seeds_said_twice_are_refused():
    with pytest.raises(RequestError, match="say it again"):
        seed_range(seeds="0:5", episodes=5)
    with pytest.raises(RequestError, match="say it again"):
        seed_range(seeds="0:5", seed=0)


def test_derived_seeds_are_fixed_for_ever():
    # sha256 of "str:inference\x1fint:0\x1fstr:goto\x1fint:7\x1fint:0", first 8 bytes, modulo 2^31
    assert derived_seed("inference", 0, "goto", 7, 0) == 1453301997


def test_derived_seeds_fit_every_provider_and_differ():
    seeds = {
        derived_seed("inference", run, task, seed, step)
        for run in range(2)
        for task in ("goto", "open")
        for seed in range(50)
        for step in range(20)
    }
    assert len(seeds) == 4000
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_a_number_and_its_text_derive_different_seeds():
    assert derived_seed("x", 1, 23) != derived_seed("x", 12, 3)
    assert derived_seed(1) != derived_seed("1")


def test_derived_shares_are_spread_evenly():
    shares = [derived_share("noise", n) for n in range(10_000)]
    assert min(shares) >= 0
    assert max(shares) < 1
    assert abs(sum(shares) / len(shares) - 0.5) < 0.02
