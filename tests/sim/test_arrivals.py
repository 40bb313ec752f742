from tests.sim.workload import sessions
from vamp.sim.arrivals import AgentArrivals, Arrivals
from vamp.workloads.agents import AgentAssumptions, team


def test_the_next_turn_follows_completion_by_the_think_time() -> None:
    a = Arrivals(sessions(1, 2, 100, think_s=5.0), None)
    sent = a.pop()
    assert (sent.at_s, sent.session_id, sent.who, sent.turn) == (0.0, "s0", 0, 0)
    assert (len(sent.prompt), len(sent.reply)) == (sent.asked.prompt_tok, sent.asked.output_tok) == (100, 20)
    assert not a
    assert a.completed(0, 0, now_s=3.0) is False
    assert a.next_s == 8.0
    a.pop()
    assert a.completed(0, 1, now_s=9.0) is True
    assert not a


def test_a_limit_starts_the_next_session_when_one_ends() -> None:
    a = Arrivals(sessions(3, 1, 100), 2)
    first, second = a.pop(), a.pop()
    assert [first.who, second.who] == [0, 1]
    assert not a
    a.completed(0, 0, now_s=4.0)
    assert a.pop().at_s == 4.0
    assert not a


def test_without_a_limit_all_sessions_start() -> None:
    a = Arrivals(sessions(3, 1, 100), None)
    assert [a.pop().who for _ in range(3)] == [0, 1, 2]


TEAM = AgentAssumptions(tasks=3, agents=2, first_tok=100.0, reply_tok=20.0, history_tok=1_000, submit_share=0)


def test_agents_are_alive_at_most_so_many_at_once() -> None:
    a = AgentArrivals(team(TEAM, 0), 2, seed=0)
    assert {a.pop().who, a.pop().who} == {0, 1}
    assert not a
    assert a.completed(0, 0, now_s=9.0) is False
    again = a.pop()
    assert (again.who, again.turn, again.at_s) == (0, 1, 9.0 + again.asked.think_s)


def test_an_agent_that_submits_makes_room_for_the_next_task() -> None:
    submits = AgentAssumptions(tasks=3, agents=2, first_tok=100.0, history_tok=1_000, submit_share=1)
    a = AgentArrivals(team(submits, 0), 2, seed=0)
    a.pop(), a.pop()
    assert a.completed(1, 0, now_s=7.0) is True
    third = a.pop()
    assert (third.who, third.at_s, third.turn) == (2, 7.0, 0)
    assert a.completed(2, 0, now_s=8.0) is True and not a


def test_the_agent_hears_the_reply_that_was_sent() -> None:
    agents, twins = team(TEAM, 0), team(TEAM, 0)
    a = AgentArrivals(agents, 2, seed=0)
    sent = a.pop()
    a.completed(sent.who, 0, now_s=50.0)
    twins[sent.who].hear(sent.reply)
    assert agents[sent.who].asked == twins[sent.who].asked
    assert len(sent.reply) == sent.asked.output_tok
