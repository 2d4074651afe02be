package udp

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/integration/require/netns"
)

// TestTooLongDatagramGoesAlone: a datagram that is too long for the device, as a probe for the path's size may be, is
// lost, and takes neither the connection nor the datagram with it that leaves in the same call.
func TestTooLongDatagramGoesAlone(t *testing.T) {
	n := netns.New(t)
	n.Do(func() {
		lo, err := netlink.LinkByName("lo")
		n.Check(err)
		n.Check(netlink.LinkSetMTU(lo, 1400))
		client, server := connect(t, listen(t))
		leave(t, client, true, 0, make([]byte, 1392), make([]byte, 1000))
		server.SetReadDeadline(time.Now().Add(time.Minute))
		b := make([]byte, 2000)
		if n, err := server.Read(b); n != 1000 || err != nil {
			t.Errorf("%d bytes came, %v, want the 1,000 that are not too long", n, err)
		}
	})
}

// TestDeviceWithoutChecksums: datagrams that leave together arrive although the device computes no checksums, for which
// Linux 6.1 does not cut a write.
func TestDeviceWithoutChecksums(t *testing.T) {
	a, b := netns.New(t), netns.New(t)
	netns.Connect(a, b, "link", []string{"10.9.0.1/24"}, []string{"10.9.0.2/24"})
	for _, n := range []*netns.Namespace{a, b} {
		n.Do(func() { n.Check(computeNoChecksums("link")) })
	}
	var l *Listener
	a.Do(func() {
		var err error
		l, err = Listen("10.9.0.1:0")
		a.Check(err)
	})
	if l == nil {
		return
	}
	defer l.Close()
	var client, server *Conn
	b.Do(func() { client, server = connect(t, l) })
	for range 2 {
		for _, way := range [][2]*Conn{{client, server}, {server, client}} {
			leave(t, way[0], true, 0, make([]byte, 1200), make([]byte, 1200), make([]byte, 100))
			way[1].SetReadDeadline(time.Now().Add(time.Minute))
			for _, want := range []int{1200, 1200, 100} {
				if n, err := way[1].Read(make([]byte, 2000)); n != want || err != nil {
					t.Fatalf("%d bytes, %v, want %d", n, err, want)
				}
			}
		}
	}
}

// computeNoChecksums has a device of the thread's namespace leave checksums to the kernel (ethtool -K DEVICE tx off).
func computeNoChecksums(device string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	const setChecksums = 0x17 // ETHTOOL_STXCSUM
	value := [2]uint32{setChecksums, 0}
	request := struct { // ifreq
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value)}
	copy(request.name[:], device)
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); e != 0 {
		return e
	}
	return nil
}

// TestDatagramsAreCutHere: where the kernel refuses to cut a write, the datagrams leave one by one, in order.
func TestDatagramsAreCutHere(t *testing.T) {
	client, server := connect(t, listen(t))
	if err := client.way.apart([]byte("abcdefghi"), 4, 0); err != nil {
		t.Fatal(err)
	}
	server.SetReadDeadline(time.Now().Add(time.Minute))
	b := make([]byte, 100)
	for _, want := range []string{"abcd", "efgh", "i"} {
		if n, err := server.Read(b); !bytes.Equal(b[:n], []byte(want)) {
			t.Errorf("%q, %v, want %q", b[:n], err, want)
		}
	}
}

// TestArrival: the control messages of a read say its datagrams' length and mark, and nothing if one of them is cut
// off.
func TestArrival(t *testing.T) {
	oob, data := control(nil, unix.SOL_UDP, unix.UDP_GRO, 4)
	binary.NativeEndian.PutUint32(data, 1200)
	first := len(oob)
	oob, data = control(oob, unix.IPPROTO_IP, unix.IP_TOS, 1)
	data[0] = byte(MarkBits)
	if each, mark := arrival(oob); each != 1200 || mark != MarkBits {
		t.Errorf("%d bytes each, mark %d, want 1200 and %d", each, mark, MarkBits)
	}
	for n := first + 1; n < first+unix.CmsgLen(1); n++ {
		if each, mark := arrival(oob[:n]); each != 0 || mark != 0 {
			t.Errorf("%d bytes each, mark %d by messages of which %d bytes are missing", each, mark, len(oob)-n)
		}
	}
}
