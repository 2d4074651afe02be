//go:build unix

package proxy

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// A proxy that is killed leaves its apps an RST: an end that looks orderly could be taken for the end of the data.
func TestKilledProxyResets(t *testing.T) {
	for _, way := range []string{"carried", "bypassing"} {
		t.Run(way, func(t *testing.T) { killedProxyResets(t, way) })
	}
}

func killedProxyResets(t *testing.T, way string) {
	if os.Getenv("GRADPROXY_TEST_KILLED") != "" {
		p := newPair(t, nil)
		if way == "bypassing" {
			settings := *p.near.settings.Load()
			settings.Peers = nil
			p.near.Apply(settings)
		}
		os.Stdout.WriteString(p.entry.Addr().String() + "\n")
		p.connectAndWait()
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestKilledProxyResets$/^"+way+"$")
	cmd.Env = append(os.Environ(), "GRADPROXY_TEST_KILLED=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	buf := make([]byte, 64)
	n, err := out.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", string(buf[:n-1]))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Write([]byte("x"))
	if _, err := io.ReadFull(c, buf[:1]); err != nil { // the server's app has answered: the connection is carried
		t.Fatal(err)
	}
	cmd.Process.Kill()
	if n, err := c.Read(buf); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("after the proxy was killed the app read %d bytes and %v, want a reset", n, err)
	}
}

// connectAndWait is the server app: it answers one byte, and then lives until it is killed.
func (p *pair) connectAndWait() {
	c, err := p.target.Accept()
	if err != nil {
		return
	}
	b := make([]byte, 1)
	c.Read(b)
	c.Write(b)
	c.Read(b) // nothing comes; an unreachable connection would be collected, and closed
	select {}
}
