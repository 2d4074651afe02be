package shadow

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gradproxy/gradproxy/proxy/policy"
	"github.com/gradproxy/gradproxy/tensor"
)

// The time in which a job's bytes move has no pauses of more than a second, however long the job rests, and all of a
// value that takes long.
func TestTimeInWhichBytesMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := start(t, &fakes{takes: time.Microsecond}, Config{Codecs: []string{"a"}, Memory: 1 << 26, Share: 1})
		c := NewConn(h, "far", nil)
		b := make([]byte, 4096)
		for range 10 {
			send(c, gradient(7, len(b)), b)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Hour)
		g := gradient(7, len(b))
		c.See(policy.Flow{}, &g, b[:1000])
		time.Sleep(5 * time.Second)
		g.Off = 1000
		c.See(policy.Flow{}, &g, b[1000:])
		if m := s.Results().Moved("far", "", tensor.Gradient); m.Bytes != 11*4096 || m.Time != 5900*time.Millisecond {
			t.Errorf("%d bytes in %v, want %d in 5.9s", m.Bytes, m.Time, 11*4096)
		}
		c.Close()
		s.Close()
	})
}
