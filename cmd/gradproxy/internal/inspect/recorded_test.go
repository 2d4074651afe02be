package inspect

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/gradproxy/gradproxy/parser"
	"github.com/gradproxy/gradproxy/tensor"
)

// A recordedJob is the line that a job prints: the folder testdata has short recordings of real jobs with two workers
// (record.sh).
type recordedJob struct{ Steps, Parameters int }

func recorded(t *testing.T, name string, c Config) (job recordedJob, roles RoleBytes) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &job); err != nil || job.Steps == 0 || job.Parameters == 0 {
		t.Fatalf("%s: %+v, %v", text, job, err)
	}
	for _, c := range read(t, "testdata/"+name+".pcap.gz", c).Connections {
		if c.Protocol != unknown && !c.Complete {
			t.Errorf("%s to %s is not complete", c.Client, c.Server)
		}
		roles = roles.plus(c.FromClient.RoleBytes).plus(c.FromServer.RoleBytes)
	}
	return job, roles
}

// Without the user's word no sum of a ring has a role. With it the ring's first phase is gradients and its second sums
// of them, from the third step on at the latest, and nothing else is.
func TestRecordedRings(t *testing.T) {
	for _, name := range []string{"torch113", "torch215", "jax"} {
		job, roles := recorded(t, name, Config{Sums: parser.SumsProved})
		if roles.Gradient+roles.Aggregate+roles.State > 0 {
			t.Errorf("%s: roles without proof: %+v", name, roles)
		}
		_, roles = recorded(t, name, Config{Sums: parser.SumsGradients})
		step := 4 * job.Parameters // of each phase, both directions
		for role, bytes := range map[tensor.Role]int{tensor.Gradient: roles.Gradient, tensor.Aggregate: roles.Aggregate} {
			if limit := job.Steps * step; bytes > limit || bytes < (job.Steps-2)*step*8/10 {
				t.Errorf("%s: %d bytes are %v, want nearly all of the %d in %d steps", name, bytes, role, limit, job.Steps)
			}
		}
	}
}

// The roles of a parameter server's arrays are exactly the ones that the framework gave them.
func TestRecordedServer(t *testing.T) {
	const workers = 2
	job, roles := recorded(t, "mxnet", Config{})
	arrays := 4 * job.Parameters
	if roles.Gradient != workers*job.Steps*arrays {
		t.Errorf("%d bytes are gradients, want %d", roles.Gradient, workers*job.Steps*arrays)
	}
	if roles.Exact < arrays || roles.State < workers*job.Steps*arrays || roles.Aggregate > 0 || roles.Unknown > 0 {
		t.Errorf("%+v, want the initial weights exact, and the weights of each step for each worker state", roles)
	}
}
