import json

import pytest

from dreamrsi.agents import BEST, HISTORY, AgentFailure, Context, MoveAgent
from toy_task import Toy, climb, fail, spoil


def test_an_attempt_is_a_function_of_files_and_seed():
    task, agent = Toy(), MoveAgent()
    first = agent.attempt(Toy(climb), task.seed_workspace(), Context(7, 1.0))
    again = agent.attempt(Toy(climb), task.seed_workspace(), Context(7, 1.0))
    other = agent.attempt(Toy(climb), task.seed_workspace(), Context(8, 1.0))
    assert first == again
    assert first.files["value"] != other.files["value"]
    assert first.tag == "climb"


def test_it_goes_back_to_the_best_of_its_workspace_and_remembers_gains():
    agent, task = MoveAgent(), Toy(spoil)
    first = agent.attempt(task, {"value": b"1.0"}, Context(0, 1.0))
    assert first.files["value"] == b"spoilt" and first.files[BEST + "value"] == b"1.0"

    second = agent.attempt(Toy(climb), first.files, Context(1, None))  # the parent failed: start from the best
    assert 0.8 <= float(second.files["value"]) <= 2.0 and second.files[BEST + "value"] == b"1.0"
    history = json.loads(second.files[HISTORY])
    assert history["tries"] == [{"move": "spoil", "gain": None}, {"move": "climb", "gain": None}]

    third = agent.attempt(Toy(climb), {**second.files, "value": b"3.0"}, Context(2, 3.0))
    assert third.files[BEST + "value"] == b"3.0"
    assert json.loads(third.files[HISTORY])["tries"][1] == {"move": "climb", "gain": 2.0}

    fourth = agent.attempt(Toy(climb), {**third.files, "value": b"2.5"}, Context(3, 2.5))
    assert fourth.files[BEST + "value"] == b"3.0"
    assert json.loads(fourth.files[HISTORY])["tries"][2] == {"move": "climb", "gain": -0.5}


def test_moves_that_helped_are_drawn_more_often():
    tries = [{"move": "climb", "gain": 1.0}] * 8 + [{"move": "spoil", "gain": None}] * 8
    files = {"value": b"1.0", HISTORY: json.dumps({"best": 1.0, "tries": tries}).encode()}
    tags = [MoveAgent().attempt(Toy(climb, spoil), files, Context(seed, 1.0)).tag for seed in range(300)]
    assert tags.count("climb") > 240  # weights 9/10 and 1/10


def test_a_move_that_raises_is_a_failure_that_names_the_move():
    with pytest.raises(AgentFailure, match="RuntimeError: broken in") as raised:
        MoveAgent().attempt(Toy(fail), {"value": b"1.0"}, Context(0, 1.0))
    assert raised.value.tag == "fail" and raised.value.status == "error"
