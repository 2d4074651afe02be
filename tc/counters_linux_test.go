package tc

import (
	"testing"

	"github.com/vishvananda/netlink"
)

// The disciplines of a link in use are read one after the other: packets that the inner one drops in between are not
// lost 2^64 times.
func TestCountersOfALinkInUse(t *testing.T) {
	statistics := func(packets, drops uint32, bytes uint64) netlink.QdiscStatistics {
		var s netlink.QdiscStatistics
		s.Basic = &netlink.GnetStatsBasic{Packets: packets, Bytes: bytes}
		s.Queue = &netlink.GnetStatsQueue{Drops: drops}
		return s
	}
	above, below := Place{Parent: Root, Handle: outer}, Place{Parent: NewHandle(1, 1), Handle: inner}
	for name, test := range map[string]struct {
		netem, tbf netlink.QdiscStatistics
		want       Counters
	}{
		"idle":    {statistics(90, 10, 900), statistics(90, 4, 900), Counters{Packets: 96, Bytes: 900, Lost: 6, Dropped: 4}},
		"a drop":  {statistics(90, 10, 900), statistics(90, 11, 900), Counters{Packets: 90, Bytes: 900, Dropped: 11}},
		"no loss": {statistics(90, 0, 900), statistics(95, 2, 950), Counters{Packets: 90, Bytes: 900, Dropped: 2}},
	} {
		var c Counters
		c.addStatistics(Netem{}, above, test.netem)
		c.addStatistics(TBF{}, below, test.tbf)
		if c != test.want {
			t.Errorf("%s: %+v, want %+v", name, c, test.want)
		}
	}
	var alone Counters
	alone.addStatistics(TBF{}, above, statistics(90, 3, 900))
	if want := (Counters{Packets: 90, Bytes: 900, Dropped: 3}); alone != want {
		t.Errorf("a bottleneck alone: %+v, want %+v", alone, want)
	}
	if got := without(3, 5); got != 0 {
		t.Errorf("3 without 5: %d", got)
	}
}
