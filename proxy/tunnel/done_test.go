package tunnel

import (
	"testing"
	"time"
)

// A peer that sends again and again for a stream that is over, and takes none of the answers, costs no more memory than
// its limit of streams allows.
func TestAnswersOwedAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fabric{delay: time.Millisecond}
		s := f.site(t, Config{Name: "tokyo", Streams: 10, Accept: func(_ string, _ []byte, in *Incoming) {
			in.Refuse(CodeApp, "")
		}}, insecure)
		p := connect(t, f, s, newIncarnation(), nil)
		again := header{kind: kindReset, stream: p.id(0), length: 4}
		record := append(again.append(nil), make([]byte, 4)...)
		for range 3 * 4096 { // more than may be owed and on the way
			if _, err := p.conn.Write(record); err != nil {
				break
			}
		}
		time.Sleep(time.Second)
		if st := s.Stats()[0]; st.Carriers != 0 {
			t.Errorf("the peer goes on: %+v", st)
		}
	})
}
