package main

import (
	"strings"
	"testing"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/adminclient"
)

// A budget's line tells the whole day's bytes only once there is a rate: at first they would be the bytes so far.
func TestBudgetLines(t *testing.T) {
	var b strings.Builder
	printBudgets(&b, []adminclient.Budget{{Peer: "tokyo", Limit: 50e9, Used: 1e9, Projected: 1e9}, {Job: "resnet", Limit: 50e9, Used: 1e9, Projected: 60e9}})
	const want = "budget of peer tokyo: 1.0 GB of 50.0 GB used today (UTC)\n" +
		"budget of job resnet: 1.0 GB of 50.0 GB used today (UTC), 60.0 GB by the end of the day at this rate: it will not last\n"
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
}
