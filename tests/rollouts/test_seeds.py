import random
import sys

import pytest

from trajkit.errors import RequestError
from trajkit.rollouts.seeds import Seeds, as_seeds, chosen_seeds, derived_seed, derived_share, shuffled


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("200:203", [200, 201, 202]),
        ("5", [5]),
        ("1,5,9", [1, 5, 9]),
        ("9,1,5", [1, 5, 9]),
        ("0:20:7", [0, 7, 14]),
        ("0:15:7", [0, 7, 14]),
        ("3,10:12,0:6:5", [0, 3, 5, 10, 11]),
        ("0:6:2,1:6:2", [0, 1, 2, 3, 4, 5]),
    ],
)
def test_seeds_are_ranges_that_are_half_open_and_single_numbers(text, seeds):
    found = chosen_seeds(seeds=text)
    assert sorted(found) == seeds
    assert len(found) == len(seeds)
    assert sorted(found[place] for place in range(len(found))) == seeds
    assert [found.index(found[place]) for place in range(len(found))] == list(range(len(seeds)))


def test_a_number_of_episodes_counts_from_the_first_seed():
    assert str(chosen_seeds(episodes=200, seed=7)) == "7:207"
    assert str(chosen_seeds(seed=3)) == "3:23"
    assert str(chosen_seeds()) == "0:20"


def test_a_file_has_seeds_one_to_a_line_and_comments(tmp_path):
    path = tmp_path / "seeds.txt"
    path.write_text("# held out\n7\n\n3  # by hand\n4\n100:103\n")
    assert str(chosen_seeds(seeds=str(path))) == "3:5,7,100:103"
    path.write_text("7\nseven\n")
    with pytest.raises(RequestError, match=r"seeds\.txt:2: seven' is not a list of seeds"):
        chosen_seeds(seeds=str(path))
    path.write_text("# none\n")
    with pytest.raises(RequestError, match="no seeds are given"):
        chosen_seeds(seeds=str(path))


@pytest.mark.parametrize(
    "text",
    [
        "", "5:", ":5", "a:b", "1:2:3:4", "-1:3", "-1", "3:3", "9:2", "1.0:2", "0:9:0", "0:9:-1", "1,,2",
        "1,", "0:99999999999999999999",
    ],
)  # fmt: skip
def test_what_names_no_seeds_is_refused(text):
    with pytest.raises(RequestError) as caught:
        chosen_seeds(seeds=text)
    assert caught.value.hint


@pytest.mark.parametrize("text", ["5,5", "0:10,5", "0:10:3,1:10:2", "0:5,3:9"])
def test_a_seed_that_is_there_twice_is_refused(text):
    with pytest.raises(RequestError, match="is given twice"):
        chosen_seeds(seeds=text)


def test_seeds_said_twice_are_refused():
    with pytest.raises(RequestError, match="would give them again"):
        chosen_seeds(seeds="0:5", episodes=5)
    with pytest.raises(RequestError, match="would give them again"):
        chosen_seeds(seeds="0:5", seed=0)


def test_the_text_of_seeds_gives_the_same_seeds_and_does_not_depend_on_how_they_were_typed():
    assert str(as_seeds("3,2,1,10:12")) == "1:4,10:12"
    assert as_seeds("1,2,3") == as_seeds("1:4") == as_seeds(range(1, 4)) == as_seeds([3, 1, 2])
    for text in ("0:1000:7", "1:4,7,100:103", "5"):
        assert str(as_seeds(text)) == text
        assert hash(as_seeds(text)) == hash(as_seeds(str(as_seeds(text))))


def test_a_long_range_takes_no_room():
    long = as_seeds("0:1000000000000")
    assert (len(long), long[10**11], long.index(10**11)) == (10**12, 10**11, 10**11)
    with pytest.raises(ValueError, match="is not in"):
        long.index(10**12)
    with pytest.raises(IndexError):
        long[10**12]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 16, 17, 100, 1000, 4097])
def test_a_shuffle_has_every_number_once(n):
    assert sorted(shuffled(n, 0)) == list(range(n))


def test_a_shuffle_follows_from_its_parts_and_looks_like_chance():
    orders = [list(shuffled(1000, "jobs", seed)) for seed in range(20)]
    assert orders[0] == list(shuffled(1000, "jobs", 0))
    assert len({tuple(order) for order in orders}) == 20
    # the mean distance of a number from its place is n / 3 in a random order (here ± 10 at 20 orders)
    moved = [abs(place - number) for order in orders for place, number in enumerate(order)]
    assert abs(sum(moved) / len(moved) - 333) < 15


def test_a_shuffle_makes_no_list():
    order = shuffled(10**12, 0)
    assert len({next(order) for _ in range(1000)}) == 1000
    assert sys.getsizeof(order) < 1000


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


def test_seeds_of_many_numbers_are_quick_to_find():
    numbers = random.Random(1).sample(range(10**9), 20_000)
    seeds = Seeds(range(one, one + 1) for one in numbers)
    assert [seeds[seeds.index(one)] for one in numbers] == numbers
