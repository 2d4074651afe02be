package sketchedsgd

import "testing"

func TestParamsBounds(t *testing.T) {
	good := Params{D: 10, K: 1, Columns: 1}
	if _, err := NewPlan(good); err != nil {
		t.Fatal(err)
	}
	for i, change := range []func(*Params){
		func(p *Params) { p.D = 0 }, func(p *Params) { p.D = -1 }, func(p *Params) { p.K = 0 }, func(p *Params) { p.K = 11 },
		func(p *Params) { p.P = -1 }, func(p *Params) { p.Rows = 2 }, func(p *Params) { p.Rows = 17 }, func(p *Params) { p.Columns = 0 },
		func(p *Params) { p.Cells = 2 }, func(p *Params) { p.Pick = 2 },
	} {
		p := good
		change(&p)
		if _, err := NewPlan(p); err == nil {
			t.Errorf("change %d: %+v is taken", i, p)
		}
	}
}
