package demo

import (
	"strings"
	"testing"
)

// The verdict on a run follows from the detail that its codecs may lose, and from its result.
func TestVerdicts(t *testing.T) {
	direct := Result{Seconds: 20, Accuracy: 0.95}
	for _, c := range []struct {
		code   string
		result Result
		want   string
	}{
		{Lossless, Result{Seconds: 16, Ratio: 1.404, ReplicasIdentical: true, SameAsDirect: true},
			"1.4 times fewer bytes on the WAN, 1.25 times as fast. Checked: both processes end with the weights of the direct run, bit for bit."},
		{"lossless(level=fast)", Result{Seconds: 25, Ratio: 0.8, ReplicasIdentical: true},
			"1.25 times as many bytes on the WAN, 1.25 times as slow. The weights ARE NOT the same as in the direct run, though nothing may be lost here."},
		{"int4", Result{Seconds: 20, Ratio: 2.75, ReplicasIdentical: true, Accuracy: 0.9437},
			"2.75 times fewer bytes on the WAN, as fast. Checked: both processes end with the same weights, bit for bit. " +
				"The classifier is right on 94.4 % of the test images, that of the direct run on 95.0 %."},
		{"3lc+lossless", Result{Seconds: 20, Ratio: 1, ReplicaDistance: 0.5},
			"as many bytes on the WAN, as fast. The two processes' weights ARE NOT the same, though both were sent the same: they differ by 0.5 of their norm."},
		{"int4+int4", Result{Seconds: 10, Ratio: 5.56, ReplicaDistance: 0.0028, Accuracy: 0.95},
			"5.56 times fewer bytes on the WAN, 2 times as fast. This is over 5 times, as it should be. " +
				"The two processes' weights differ by 0.0028 of their norm, less than 0.02, as it should be. " +
				"The classifier is right on 95.0 % of the test images, that of the direct run on 95.0 %."},
		{"int4+int4", Result{Seconds: 10, Ratio: 5, ReplicaDistance: 0.02},
			"5 times fewer bytes on the WAN, 2 times as fast. It should be over 5 times, and IS NOT. " +
				"(Everything travels exactly in the first two steps, and later any value that does not look like a sum of gradients; with more steps the first two weigh less.) " +
				"The two processes' weights differ by 0.02 of their norm: it should be less than 0.02, and IS NOT. " +
				"The classifier is right on 0.0 % of the test images, that of the direct run on 95.0 %."},
		{"lossless+int8", Result{Seconds: 10, Ratio: 2, ReplicaDistance: 0.001, Accuracy: 1},
			"2 times fewer bytes on the WAN, 2 times as fast. The two processes' weights differ by 0.001 of their norm, less than 0.02, as it should be. " +
				"The classifier is right on 100.0 % of the test images, that of the direct run on 95.0 %."},
	} {
		o := Options{Wires: []string{"gloo"}, Codes: []string{c.code}}.withDefaults()
		r := o.runs()[1]
		got := verdict(r, r.label(o.Wires), c.result, direct)
		if got := strings.Join(strings.Fields(got), " "); got != c.code+": "+c.want {
			t.Errorf("got  %s\nwant %s: %s", got, c.code, c.want)
		}
	}
}

// The introduction describes each run, and names its wire where there are several.
func TestIntroduction(t *testing.T) {
	o := Options{Link: Link{Rate: 100e6}}.withDefaults()
	said := introduction(o, o.runs())
	for _, want := range []string{"90 steps", "340 kB of", "\n  gloo direct     no proxies", "\n  gloo lossless   two proxies",
		"\n  gloo int4       gradients may lose detail", "\n  gloo int4+int4  sums may lose detail too",
		"\n  pslite direct   no proxies", "\n  pslite int4     gradients may lose detail"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is missing in\n%s", want, said)
		}
	}
	if !strings.Contains(strings.Join(strings.Fields(said), " "), "100 Mbit/s and 0s round trip") {
		t.Errorf("the link is not told in\n%s", said)
	}
	if o.Model = []int{32}; o.parameters() != 2410 {
		t.Errorf("64-32-10 has %d parameters, want 2,410", o.parameters())
	}
	r := Run{Wire: "gloo", Name: Direct}
	if got := r.label([]string{"gloo", "pslite"}); got != "gloo direct" {
		t.Errorf("with two wires a run is called %q", got)
	}
}

// Where the loss is, the purpose of a run says.
func TestPurposeOfTwoCodecs(t *testing.T) {
	for _, c := range []struct {
		wire, code, to, back string
	}{
		{"nvflare", "int8", "weights may lose detail on their way", "models come back as differences"},
		{"nvflare", "lossless+int4", "weights arrive exactly", "models come back as differences"},
		{"nvflare", "int4+lossless", "weights may lose detail on their way", "models come back exactly"},
		{"pslite", "lossless+int4", "gradients arrive exactly", "weights come back as differences"},
		{"tensorflow", "int4+lossless", "gradients may lose detail on their way", "weights come back exactly"},
	} {
		if got := newRun(c.wire, c.code).purpose(); !strings.Contains(got, c.to) || !strings.Contains(got, c.back) {
			t.Errorf("%s, %s: %s", c.wire, c.code, got)
		}
	}
}

func TestWrapKeepsEveryWord(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  string
	}{
		{"a bc  def", 4, "a bc|def"}, {"a bc def", 8, "a bc def"}, {"longer a", 3, "longer|a"}, {"", 5, ""},
	} {
		if got := strings.Join(wrap(c.text, c.width), "|"); got != c.want {
			t.Errorf("wrap(%q, %d): got %q, want %q", c.text, c.width, got, c.want)
		}
	}
}
