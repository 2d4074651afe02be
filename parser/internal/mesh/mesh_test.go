package mesh

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// record returns the value of a rank that listens at an address, and expects the others by these numbers.
func record(listener string, numbers ...int64) []byte {
	a := netip.MustParseAddrPort(listener)
	b := binary.LittleEndian.AppendUint64(nil, 4)
	b = append(b, "host"...)
	b = binary.LittleEndian.AppendUint64(b, 136)
	address := make([]byte, 128)
	for i := range address {
		address[i] = byte(i) + 99 // the sender's memory, where nothing else stands
	}
	binary.BigEndian.PutUint16(address[2:], a.Port())
	if a.Addr().Is4() {
		binary.LittleEndian.PutUint16(address, 2)
		copy(address[4:], a.Addr().AsSlice())
	} else {
		binary.LittleEndian.PutUint16(address, 10)
		copy(address[8:], a.Addr().AsSlice())
	}
	b = append(b, address...)
	for _, x := range append([]int64{-1}, numbers...) {
		b = binary.LittleEndian.AppendUint64(b, uint64(x))
	}
	return b
}

// Two hosts with two ranks each. Each rank counts its pairs, the one with itself included, on from its first mesh.
var listeners = [4]string{"10.1.0.1:5000", "10.2.0.1:5000", "10.1.0.1:6000", "10.2.0.1:6000"}

const devices = "cpu:gloo/0,2048,4096,6144/"

func numbers(from int64) []int64 { return []int64{from, from + 1, from + 2, from + 3} }

// tableOf returns a Table with the records of all four ranks.
func tableOf(job, peer string) *Table {
	t := new(Table)
	for rank, listener := range listeners {
		t.Note(job, peer, fmt.Sprint(devices, rank), record(listener, numbers(7)...))
	}
	return t
}

// join asks for the ranks of a connection from a host, at any port, to a listener.
func join(t *Table, job, peer, client, server string, number int64) string {
	p, ok := t.Join(job, peer, netip.AddrPortFrom(netip.MustParseAddr(client), 45678), netip.MustParseAddrPort(server), number)
	if !ok {
		return "unknown"
	}
	return fmt.Sprintf("%d to %d of %d", p.Client, p.Server, p.Ranks)
}

// The number and the listener tell both ranks, though ranks share the hosts, and only once.
func TestJoin(t *testing.T) {
	table := tableOf("", "tokyo")
	for _, c := range []struct {
		client, server string
		number         int64
		want           string
	}{
		{"10.1.0.1", listeners[1], 7, "0 to 1 of 4"},
		{"10.1.0.1", listeners[1], 9, "2 to 1 of 4"},
		{"10.1.0.1", listeners[3], 7, "0 to 3 of 4"},
		{"10.1.0.1", listeners[1], 7, "unknown"},  // once more
		{"10.2.0.1", listeners[0], 8, "unknown"},  // these two have a connection, the other way
		{"10.1.0.1", listeners[3], 8, "unknown"},  // rank 1 listens at another host
		{"10.1.0.1", listeners[3], 10, "unknown"}, // its own number
		{"10.1.0.1", listeners[3], 11, "unknown"}, // nobody's number
		{"10.1.0.1", listeners[3], -1, "unknown"},
		{"10.1.0.1", "10.2.0.1:7000", 9, "unknown"},
		{"::ffff:10.1.0.1", "[::ffff:10.2.0.1]:6000", 9, "2 to 3 of 4"},
	} {
		if got := join(table, "", "tokyo", c.client, c.server, c.number); got != c.want {
			t.Errorf("from %s to %s with number %d: %s, want %s", c.client, c.server, c.number, got, c.want)
		}
	}
}

// A rank is known only from records, and its own address is one of them.
func TestBothRecordsMustHaveCome(t *testing.T) {
	table := new(Table)
	table.Note("", "", devices+"1", record(listeners[1], numbers(0)...))
	if got := join(table, "", "", "10.1.0.1", listeners[1], 0); got != "unknown" {
		t.Errorf("without the record of rank 0: %s", got)
	}
	table.Note("", "", devices+"0", record(listeners[0], numbers(0)...))
	if got := join(table, "", "", "10.1.0.1", listeners[1], 0); got != "0 to 1 of 4" {
		t.Errorf("with both records: %s", got)
	}
}

// Records count for their job, whichever peer they came from, or without a job for their peer.
func TestJobsStayApart(t *testing.T) {
	for _, c := range []struct{ job, peer, otherJob, otherPeer, want string }{
		{"a", "tokyo", "a", "berlin", "0 to 1 of 4"},
		{"a", "tokyo", "b", "tokyo", "unknown"},
		{"a", "tokyo", "", "tokyo", "unknown"},
		{"", "tokyo", "", "tokyo", "0 to 1 of 4"},
		{"", "tokyo", "", "berlin", "unknown"},
	} {
		if got := join(tableOf(c.job, c.peer), c.otherJob, c.otherPeer, "10.1.0.1", listeners[1], 7); got != c.want {
			t.Errorf("noted for job %q, peer %q, asked for %q, %q: %s, want %s", c.job, c.peer, c.otherJob, c.otherPeer, got, c.want)
		}
	}
}

// Meshes of one process share its listener, whose numbers go on. If two meshes have the same number at one listener,
// one of them is of another run, and nobody can tell which.
func TestSeveralMeshes(t *testing.T) {
	table := tableOf("", "")
	table.Note("", "", "cpu:gloo/2048,0/0", record(listeners[1], 11, 12))
	table.Note("", "", "cpu:gloo/2048,0/1", record(listeners[0], 11, 12))
	if got := join(table, "", "", "10.1.0.1", listeners[1], 12); got != "1 to 0 of 2" {
		t.Errorf("in the second mesh: %s", got)
	}
	table.Note("", "", "cpu:gloo/2048,4096/0", record(listeners[1], 8, 9))
	table.Note("", "", "cpu:gloo/2048,4096/1", record(listeners[2], 8, 9))
	if got := join(table, "", "", "10.1.0.1", listeners[1], 9); got != "unknown" {
		t.Errorf("by a number that two meshes have: %s", got)
	}
}

// A record that is read again changes nothing. Another one for the same rank is of a new run, in which the old
// listeners mean nothing.
func TestNewRun(t *testing.T) {
	table := tableOf("", "")
	if got := join(table, "", "", "10.1.0.1", listeners[1], 7); got != "0 to 1 of 4" {
		t.Fatal(got)
	}
	table.Note("", "", devices+"1", record(listeners[1], numbers(7)...))
	if got := join(table, "", "", "10.1.0.1", listeners[1], 7); got != "unknown" {
		t.Errorf("after the record was read again: %s", got)
	}
	table.Note("", "", devices+"1", record("10.2.0.1:7777", numbers(7)...))
	if got := join(table, "", "", "10.1.0.1", listeners[3], 7); got != "unknown" {
		t.Errorf("by a record of the old run: %s", got)
	}
	table.Note("", "", devices+"0", record("10.1.0.1:7777", numbers(7)...))
	if got := join(table, "", "", "10.1.0.1", "10.2.0.1:7777", 7); got != "0 to 1 of 4" {
		t.Errorf("in the new run: %s", got)
	}
}

// Values that are no records change nothing, even if they are records in part.
func TestForeignValues(t *testing.T) {
	good := record(listeners[1], 0, 1)
	with := func(at int, x byte) []byte {
		b := append([]byte(nil), good...)
		b[at] = x
		return b
	}
	for name, c := range map[string]struct {
		key   string
		value []byte
	}{
		"good":                {"cpu:gloo/0,1/1", good},
		"another use":         {"cpu:local_topology/cpu/1", good},
		"no rank":             {"cpu:gloo/0,1", good},
		"a rank too many":     {"cpu:gloo/0,1/2", good},
		"a negative rank":     {"cpu:gloo/0,1/-1", good},
		"a rank with a zero":  {"cpu:gloo/0,1/01", good},
		"one rank":            {"cpu:gloo/0/0", record(listeners[1], 0)},
		"no device":           {"cpu:gloo/0,/1", good},
		"two ranks":           {"cpu:gloo/0,1/1/1", good},
		"more devices":        {"cpu:gloo/0,1,2/1", good},
		"no numbers":          {"cpu:gloo/0,1/1", record(listeners[1])},
		"equal numbers":       {"cpu:gloo/0,1/1", record(listeners[1], 1, 1)},
		"a negative number":   {"cpu:gloo/0,1/1", record(listeners[1], 0, -1)},
		"a long host's name":  {"cpu:gloo/0,1/1", with(3, 1)},
		"another length":      {"cpu:gloo/0,1/1", with(12, 135)},
		"a socket in a file":  {"cpu:gloo/0,1/1", with(20, 1)},
		"cut short":           {"cpu:gloo/0,1/1", good[:len(good)-1]},
		"empty":               {"cpu:gloo/0,1/1", nil},
		"longer than a value": {"cpu:gloo/0,1/1", append(make([]byte, MaxRecord), good...)},
		"a long key":          {"cpu:gloo/" + strings.Repeat("0", MaxKey) + ",1/1", good},
		"many ranks":          {"cpu:gloo/0" + strings.Repeat(",1", maxRanks) + "/1", record(listeners[1], make([]int64, maxRanks+1)...)},
	} {
		table := new(Table)
		if table.Note("", "", c.key, c.value); (table.meshes.Len() > 0) != (name == "good") {
			t.Errorf("%s: %d meshes", name, table.meshes.Len())
		}
	}
	var none *Table
	if none.Note("", "", "cpu:gloo/0,1/1", good); join(none, "", "", "10.1.0.1", listeners[1], 0) != "unknown" {
		t.Error("no table knows ranks")
	}
}

func TestIPv6(t *testing.T) {
	table := new(Table)
	table.Note("", "", "cpu:gloo/0,1/0", record("[2001:db8::1]:5000", 0, 1))
	table.Note("", "", "cpu:gloo/0,1/1", record("[2001:db8::2]:5000", 0, 1))
	if got := join(table, "", "", "2001:db8::2", "[2001:db8::1]:5000", 1); got != "1 to 0 of 2" {
		t.Error(got)
	}
}

// A Table is bounded, however many meshes there are and however large. The newest ones stay.
func TestBounded(t *testing.T) {
	for _, ranks := range []int{2, maxRanks} {
		table := new(Table)
		var all []int64
		ids := "0"
		for i := range int64(ranks) {
			if all = append(all, i); i > 0 {
				ids += fmt.Sprint(",", i)
			}
		}
		const made = 3 * maxMeshes
		for i := range made {
			for rank := range 2 {
				table.Note(fmt.Sprint(i), "", fmt.Sprintf("cpu:gloo/%s/%d", ids, rank), record(listeners[rank], all...))
			}
		}
		links := 0
		for _, members := range table.meshes.FromNewest() {
			links += len(members) * len(members)
		}
		if n := table.meshes.Len(); n != min(maxMeshes, maxLinks/ranks/ranks) || links != table.links {
			t.Errorf("%d ranks: %d meshes with %d links, want %d links", ranks, n, table.links, links)
		}
		if got, want := join(table, fmt.Sprint(made-1), "", "10.1.0.1", listeners[1], 0), fmt.Sprintf("0 to 1 of %d", ranks); got != want {
			t.Errorf("the newest of them: %s, want %s", got, want)
		}
	}
}

// Any value is safe.
func FuzzNote(f *testing.F) {
	f.Add("cpu:gloo/0,1/1", record(listeners[1], 0, 1))
	f.Add("cpu:gloo/0,1/1", []byte(nil))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		table := new(Table)
		table.Note("", "", key, value)
		table.Note("", "", key, value)
		if n := table.meshes.Len(); n > 1 || n == 0 && table.links > 0 {
			t.Errorf("%d meshes, %d links", n, table.links)
		}
		join(table, "", "", "10.1.0.1", listeners[1], 0)
	})
}
