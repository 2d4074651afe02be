package program

import "testing"

func TestTable(t *testing.T) {
	table := NewTable("way", "#s/step")
	table.Row("direct", 0.5)
	table.Row("3lc|int4", "1.25")
	want := "| way | s/step |\n| --- | ---:|\n| direct | 0.5 |\n| 3lc\\|int4 | 1.25 |\n"
	if got := table.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestBars(t *testing.T) {
	bars := Bars{{"it is fast", true}, {"it is exact", false}}
	if got, want := bars.String(), "- it is fast: holds\n- it is exact: DOES NOT HOLD\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
