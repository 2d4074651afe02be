package intercept

import (
	"net/netip"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gradproxy/gradproxy/integration/require"
)

// The text that users are shown and the rules in the kernel are the same: nft lists both alike.
func TestPlanIsWhatIsApplied(t *testing.T) {
	t.Parallel()
	require.Command(t, "nft")
	configs := map[string]RedirectConfig{
		"usual":          paris(),
		"gateway":        {Site: "gw", Networks: prefixes("10.2.0.0/16", "2001:db8::/32"), Gateway: true, Refuse: true, Ports: Ports{29500, 29500}},
		"tproxy":         {Site: "tp", Networks: prefixes("10.2.0.0/16", "2001:db8::/32"), Transparent: true, Refuse: true},
		"hold":           {Site: "ho", Networks: prefixes("10.2.0.0/16", "2001:db8::/32"), Gateway: true, Refuse: true, Hold: HoldFor},
		"hold by tproxy": {Site: "ht", Networks: prefixes("10.2.0.0/16"), Transparent: true, Refuse: true, Hold: HoldFor},
		"everything":     {Site: "all", Networks: prefixes("0.0.0.0/0", "::/0")},
		"last":           {Site: "last", Networks: prefixes("10.0.0.0/8", "255.255.255.255/32", "192.168.0.0/24", "192.168.1.0/24")},
	}
	for name, c := range configs {
		t.Run(name, func(t *testing.T) {
			job := newSite(t)
			r := redirect(job, c)
			p := inKernel(r).plan
			applied := job.list(p.Table)
			if err := inKernel(r).remove(); err != nil {
				t.Fatal(err)
			}
			job.nft(p.String(), "-f", "-")
			if printed := job.list(p.Table); printed != applied {
				t.Errorf("applied:\n%s\nprinted:\n%s", applied, printed)
			}
		})
	}
}

// list returns a table as nft lists it, with the seconds that elements have left taken out.
func (s *site) list(table string) string {
	return regexp.MustCompile(` expires [0-9ms]+`).ReplaceAllString(s.nft("", "list", "table", "inet", table), "")
}

func (s *site) nft(input string, args ...string) (out string) {
	s.t.Helper()
	s.Do(func() {
		cmd := exec.Command("nft", args...)
		cmd.Stdin = strings.NewReader(input)
		b, err := cmd.CombinedOutput()
		if err != nil {
			s.t.Errorf("nft %v: %v: %s", args, err, b)
		}
		out = string(b)
	})
	return out
}

// Without CAP_NET_ADMIN the error names the capability and its use, in one line.
func TestMissingPrivilegeIsNamed(t *testing.T) {
	job := newSite(t)
	job.Do(func() {
		if err := dropCapability(unix.CAP_NET_ADMIN); err != nil {
			t.Error(err)
			return
		}
		_, err := NewRedirect(paris())
		if err == nil || !strings.Contains(err.Error(), "CAP_NET_ADMIN") || strings.Contains(err.Error(), "\n") {
			t.Errorf("NewRedirect = %v", err)
		}
	})
}

// The listeners are plain TCP: SO_ORIGINAL_DST is not known to MPTCP sockets.
func TestListenersAreNotMultipath(t *testing.T) {
	l, err := listen("tcp", netip.MustParseAddrPort("127.0.0.1:0"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	raw, err := l.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var protocol int
	if err := raw.Control(func(fd uintptr) { protocol, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PROTOCOL) }); err != nil {
		t.Fatal(err)
	}
	if err != nil || protocol != unix.IPPROTO_TCP {
		t.Errorf("SO_PROTOCOL = %d, %v, want %d", protocol, err, unix.IPPROTO_TCP)
	}
}
