from tests.sim.workload import sessions
from vamp.sim.arrivals import Arrivals


def test_the_next_turn_follows_completion_by_the_think_time() -> None:
    a = Arrivals(sessions(1, 2, 100, think_s=5.0), None)
    at_s, session, index, turn = a.pop()
    assert (at_s, session.session_id, index, turn) == (0.0, "s0", 0, 0)
    assert not a
    assert a.completed(0, 0, now_s=3.0) is False
    assert a.next_s == 8.0
    a.pop()
    assert a.completed(0, 1, now_s=9.0) is True
    assert not a


def test_a_limit_starts_the_next_session_when_one_ends() -> None:
    a = Arrivals(sessions(3, 1, 100), 2)
    first, second = a.pop(), a.pop()
    assert [first[2], second[2]] == [0, 1]
    assert not a
    a.completed(0, 0, now_s=4.0)
    assert a.pop()[:1] == (4.0,)
    assert not a


def test_without_a_limit_all_sessions_start() -> None:
    a = Arrivals(sessions(3, 1, 100), None)
    assert [a.pop()[2] for _ in range(3)] == [0, 1, 2]
