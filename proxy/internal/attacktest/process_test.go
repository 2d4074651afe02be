package attacktest

import (
	"context"
	"testing"
	"time"
)

// lingers is how long the attack of the test takes to come to its end.
const lingers = 100 * time.Millisecond

func TestMain(m *testing.M) {
	Main(map[string]Attack{"lingering": func(ctx context.Context, ready func(), _ ...string) (int, error) {
		began := time.Now()
		ready()
		<-ctx.Done()
		lasted := time.Since(began)
		for spent := Spent(); Spent()-spent < lingers && time.Since(began) < lasted+time.Second; { // Spent is not known everywhere
		}
		return int(lasted), nil
	}})
	m.Run()
}

// TestReportEndsAtTheStop: a Report counts neither the time nor the processor time that an attack needs to come to its
// end.
func TestReportEndsAtTheStop(t *testing.T) {
	r := Start(t, "lingering").Stop(t)
	if r.Lasted > time.Duration(r.Tries) {
		t.Errorf("the attack lasted %v, says the report, but it was stopped after %v", r.Lasted, time.Duration(r.Tries))
	}
	if r.Spent >= lingers {
		t.Errorf("%v of processor time are in the report, of which %v were used after the stop", r.Spent, lingers)
	}
}
