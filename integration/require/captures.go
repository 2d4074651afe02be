package require

import (
	"os"
	"path/filepath"
	"testing"
)

// CapturesVariable is the environment variable that names the directory of recorded jobs. They are too large for the
// repository. NAME.pcap.gz has all packets of a job from its start, as tcpdump -i lo -s 0 -w NAME.pcap tcp writes them
// beside it; cmd/gradproxy/internal/inspect/testdata/record.sh records jobs so. NAME.truth.json is the truth that the
// test of the protocol reads: each connection's addresses, messages, roles and hashes of its payloads, as the job's own
// process recorded them. No program of the repository writes it. NAME begins with the protocol, such as gloo, pslite or
// tf.
const CapturesVariable = "GRADPROXY_CAPTURES"

// Captures skips t unless there is a directory of recorded jobs, and returns its files whose names match pattern
// (filepath.Match), one at least.
func Captures(t testing.TB, pattern string) []string {
	t.Helper()
	dir := os.Getenv(CapturesVariable)
	Named(t, "captures", dir != "", "set "+CapturesVariable+" to a directory of captures with their truth")
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s in %s (%v)", pattern, dir, err)
	}
	return files
}
