"""Which delivery tags are acknowledged one by one, and which by a tag that includes all previous ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stagepost.transport.rabbitmq.consumed_queue import ConsumedQueue


class BrokerChannel:
    """Knows tags as a broker does: an unknown one closes the channel."""

    def __init__(self, delivered: int) -> None:
        self.unknown_tag_was_acked = False
        self.open = set(range(1, delivered + 1))
        self.acked: list[int] = []

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        if tag not in self.open:
            self.unknown_tag_was_acked = True
        gone = {known for known in self.open if known <= tag} if multiple else {tag}
        self.open -= gone
        self.acked += sorted(gone)


def send(channel: BrokerChannel, line: ConsumedQueue, tags: set[int]) -> None:
    """As the consumer does it."""
    up_to, singly = line.acknowledge(tags)
    if up_to is not None:
        channel.ack(up_to, multiple=True)
    for tag in singly:
        channel.ack(tag)


@st.composite
def groups(draw: st.DrawFn) -> list[set[int]]:
    """All tags from 1 on, in any order, in groups of any size; some come again."""
    tags = draw(st.permutations(range(1, draw(st.integers(1, 40)) + 1)))
    made: list[set[int]] = []
    while tags:
        size = draw(st.integers(1, len(tags)))
        made.append(set(tags[:size]) | draw(st.sets(st.sampled_from(sorted(set().union(*made) or {tags[0]})))))
        tags = tags[size:]
    return made


@given(groups())
def test_every_tag_is_acknowledged_exactly_once_and_only_after_it_was_released(groups: list[set[int]]) -> None:
    last = max(set().union(*groups))
    channel, line = BrokerChannel(last), ConsumedQueue(1, "queue", 0)
    told: set[int] = set()

    for tags in groups:
        told |= tags
        send(channel, line, tags)
        assert set(channel.acked) == told, "more or less was acknowledged than was told"

    assert sorted(channel.acked) == list(range(1, last + 1))
    assert not channel.unknown_tag_was_acked
    assert (line.next_tag, line.ahead) == (last + 1, set())


@given(groups())
def test_the_tag_that_stands_for_all_before_it_is_always_new(groups: list[set[int]]) -> None:
    line, told = ConsumedQueue(1, "queue", 0), set[int]()

    for tags in groups:
        up_to, singly = line.acknowledge(set(tags))

        assert up_to is None or (up_to in tags and up_to not in told)
        assert not told & set(singly)
        assert up_to is None or set(range(1, up_to + 1)) <= told | tags
        told |= tags


def test_tags_released_in_order_are_acknowledged_by_the_last_one() -> None:
    line = ConsumedQueue(1, "queue", 0)

    assert line.acknowledge({1, 2, 3}) == (3, [])
    assert line.acknowledge({5, 7}) == (None, [5, 7])
    assert line.acknowledge({4}) == (4, [])
    assert line.acknowledge({6, 8}) == (8, [])
    assert line.acknowledge({8, 3}) == (None, [])


def looked(line: ConsumedQueue, *looks: tuple[int, int]) -> list[bool]:
    return [line.is_dropped(ready=ready, consumers=consumers) for ready, consumers in looks]


def test_a_consumer_is_dropped_if_it_misses_messages_twice_or_its_queue_reports_no_consumer() -> None:
    idle = ConsumedQueue(1, "queue", 2, None)

    assert looked(idle, (0, 1), (5, 1), (0, 1), (5, 1), (5, 1)) == [False, False, False, False, True]
    assert looked(ConsumedQueue(1, "queue", 2, None), (0, 0), (0, 0)) == [False, True]


def test_a_consumer_at_its_prefetch_limit_is_not_dropped() -> None:
    full = ConsumedQueue(1, "queue", 2, None, last_tag=3, checked_tag=3)
    full.acknowledge({2})

    assert looked(full, (5, 1), (5, 1)) == [False, False]
    full.acknowledge({1})
    assert looked(full, (5, 1), (5, 1)) == [False, True]


def test_a_consumer_that_received_something_is_not_dropped() -> None:
    busy = ConsumedQueue(1, "queue", 0, None, last_tag=3, checked_tag=2)

    assert looked(busy, (5, 1), (5, 1)) == [False, False]
