package site

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
)

// budgetsOf returns the budgets of a site that carries carried[owner] bytes.
func budgetsOf(now *time.Time, carried map[owner]float64) *allowances {
	a := &allowances{log: slog.New(slog.DiscardHandler), clock: func() time.Time { return *now }, bytes: func(peer, job string) float64 { return carried[owner{peer, job}] }}
	_, hold := a.plan(&config.Config{Peers: []config.Peer{{Name: "tokyo", Budget: config.Budget{GBPerDay: 10, Then: []string{"int8", "int4"}}}},
		Jobs: []config.Job{{Name: "mnist", Budget: config.Budget{GBPerDay: 1}}}})
	hold()
	return a
}

// The use of a day, its stage and its lines in the log outlive the process, and the next day begins anew.
func TestAllowancesOutliveTheProcess(t *testing.T) {
	begin := time.Date(2026, 3, 1, 22, 0, 0, 0, time.UTC)
	tokyo, mnist := owner{peer: "tokyo"}, owner{job: "mnist"}
	now, carried := begin, map[owner]float64{}
	a := budgetsOf(&now, carried)
	for range 10 {
		a.count()
		now = now.Add(time.Minute)
		carried[tokyo] += 0.8e9
		carried[mnist] += 0.01e9
	}
	a.count()
	if x := a.all[tokyo]; x.used != 8e9 || x.stage != 2 || x.said != overProjected {
		t.Fatalf("%+v", x)
	}
	var file bytes.Buffer
	if err := a.Save(&file); err != nil {
		t.Fatal(err)
	}
	saved := file.String()

	now = now.Add(time.Minute)
	after := map[owner]float64{}
	b := budgetsOf(&now, after)
	if err := b.Load(strings.NewReader(saved), now); err != nil {
		t.Fatal(err)
	}
	after[tokyo] = 1e9 // before the first count
	b.count()
	if x := b.all[tokyo]; x.used != 9e9 || x.stage != 2 || x.said != overProjected {
		t.Errorf("%+v", x)
	}
	if x := b.all[mnist]; x.used != 0.1e9 {
		t.Errorf("%+v", x)
	}
	if list := b.list(); len(list) != 2 || list[0].Peer != "tokyo" || list[0].Plan != "Tensors that may lose something travel by int4 until the day ends (UTC)." || !strings.Contains(list[1].Plan, "only says so") {
		t.Errorf("%+v", list)
	}

	now = begin.Add(3 * time.Hour)
	c := budgetsOf(&now, map[owner]float64{})
	if err := c.Load(strings.NewReader(saved), now); err != nil {
		t.Fatal(err)
	}
	c.count()
	if x := c.all[tokyo]; x.used != 0 || x.stage != 0 {
		t.Errorf("on the next day %+v", x)
	}
	if list := c.list(); list[0].Plan != "If the day's bytes will not last, tensors that may lose something move to int8 from 5 GB on, and to int4 from 7.5 GB on." || list[0].Left != 23*3600 {
		t.Errorf("%+v", list[0])
	}
}

// A file that no proxy has written is refused, and changes nothing.
func TestAllowancesFromStrangeFiles(t *testing.T) {
	now := time.Date(2026, 3, 1, 22, 0, 0, 0, time.UTC)
	for _, text := range []string{"", "{}", `{"version":2}`, `{"version":1,"day":1772323200,"budgets":[{"peer":"tokyo","used_bytes":-1}]}`,
		`{"version":1,"day":1772323200,"budgets":[{"peer":"tokyo","used_bytes":1e999}]}`, `{"version":1,"day":1772323200,"budgets":[{"peer":"tokyo","said":9}]}`,
		`{"version":1,"day":1772323200,"budgets":[{"peer":"tokyo","stage":-1}]}`, strings.Repeat(" ", maxAllowances+1)} {
		a := budgetsOf(&now, map[owner]float64{})
		if err := a.Load(strings.NewReader(text), now); err == nil {
			t.Errorf("%.60q is taken", text)
		}
		if x := a.all[owner{peer: "tokyo"}]; !x.day.IsZero() {
			t.Errorf("%.60q: %+v", text, x)
		}
	}
	a := budgetsOf(&now, map[owner]float64{})
	if err := a.Load(strings.NewReader(`{"version":1,"day":1772323200,"budgets":[{"peer":"tokyo","used_bytes":7,"stage":99},{"peer":"gone","used_bytes":1}]}`), now); err != nil {
		t.Fatal(err)
	}
	if x := a.all[owner{peer: "tokyo"}]; x.used != 7 || x.stage != 2 {
		t.Errorf("%+v", x)
	}
}
