package admin

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"testing"
)

// A web page of another site that a browser on this host shows reads nothing, neither by a request across origins nor
// by a name that leads to this host's loopback address.
func TestForeignPagesReadNothing(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "unix:" + filepath.Join(t.TempDir(), "s")} {
		l, err := Listen(address)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- Serve(ctx, l, Config{}) }()
		tcp := l.Addr().Network() == "tcp"
		client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, l.Addr().Network(), l.Addr().String())
		}}}
		for _, x := range []struct {
			host, header, value string
			ok                  bool
		}{
			{"127.0.0.1:9090", "", "", true},
			{"[::1]:9090", "", "", true},
			{"localhost", "", "", true},
			{"LOCALHOST.:9090", "", "", true},
			{"evil.example:9090", "", "", !tcp}, // no name leads to a socket of a file
			{"localhost.evil.example", "", "", !tcp},
			{"127.0.0.1:9090", "Origin", "https://evil.example", false},
			{"127.0.0.1:9090", "Origin", "null", false},
			{"127.0.0.1:9090", "Origin", "http://127.0.0.1:9090", true},
			{"127.0.0.1:9090", "Sec-Fetch-Site", "cross-site", false},
			{"127.0.0.1:9090", "Sec-Fetch-Site", "none", true},
		} {
			r, err := http.NewRequest("GET", "http://x/healthz", nil)
			if err != nil {
				t.Fatal(err)
			}
			if r.Host = x.host; x.header != "" {
				r.Header.Set(x.header, x.value)
			}
			w, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			w.Body.Close()
			if want := map[bool]int{true: 200, false: 403}[x.ok]; w.StatusCode != want {
				t.Errorf("%s, host %s, %s: %d, want %d", l.Addr().Network(), x.host, fmt.Sprint(x.header, " ", x.value), w.StatusCode, want)
			}
		}
		client.CloseIdleConnections()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
