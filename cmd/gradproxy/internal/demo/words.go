package demo

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/train/digits"
)

// The texts of a demo, for readers who have never seen gradproxy.

const (
	lineLen = 79 // of text that is not a table

	float32Len = 4 // bytes
)

// introduction describes the demo, and the purpose of each run.
func introduction(o Options, runs []Run) string {
	var b strings.Builder
	joined := "In each of %d steps both compute gradients from images of their own, which are added up across the WAN between two sites. "
	if o.federated() {
		joined = "In each of %d steps both train on images of their own, which never leave them; after every " + fmt.Sprint(localSteps) + " a server across the WAN averages their results. "
	}
	for _, line := range wrap(fmt.Sprintf("Two processes train one classifier of handwritten digits, %s of weights. "+joined+
		"The WAN is emulated: %v. Everything is in this one program, and every run trains the same way:",
		size(float32Len*o.parameters()), o.Steps, o.Link), lineLen) {
		fmt.Fprintln(&b, line)
	}
	b.WriteByte('\n')
	width := 0
	for _, r := range runs {
		width = max(width, len(r.label(o.Wires)))
	}
	before := ""
	for _, r := range runs {
		label, purpose := r.label(o.Wires), r.purpose()
		if purpose == before {
			purpose = "the same, by another method"
		} else {
			before = purpose
		}
		for _, line := range wrap(purpose, lineLen-width-4) {
			fmt.Fprintf(&b, "  %-*s  %s\n", width, label, line)
			label = ""
		}
	}
	b.WriteByte('\n')
	return b.String()
}

// federated reports whether all of the jobs are federated learning.
func (o Options) federated() bool {
	return len(o.Wires) > 0 && !slices.ContainsFunc(o.Wires, func(wire string) bool { return !Federated(wire) })
}

// wrap cuts text into lines of at most width bytes, but for longer words.
func wrap(text string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// parameters is the number of weights and biases of the classifier.
func (o Options) parameters() (n int) {
	widths := slices.Concat([]int{digits.Pixels}, o.Model, []int{digits.Classes})
	for i, w := range widths[1:] {
		n += w * (widths[i] + 1)
	}
	return n
}

// size writes a number of bytes.
func size(bytes int) string {
	if bytes >= 1e6 {
		return fmt.Sprintf("%.1f MB", float64(bytes)/1e6)
	}
	return fmt.Sprintf("%.3g kB", float64(bytes)/1e3)
}

// label is the name of a run, and of its wire if there are several.
func (r Run) label(wires []string) string {
	if len(wires) > 1 {
		return r.Wire + " " + r.Name
	}
	return r.Name
}

// purpose describes a run and the reason for it.
func (r Run) purpose() string {
	if r.Name == Direct {
		return "no proxies: the job as it is, " + layout(r.Wire)
	}
	switch r.promise() {
	case sameWeights:
		return "two proxies, which the job knows nothing of; all arrives bit for bit, so the result must be that of the direct run"
	case sameReplicas:
		switch r.Wire {
		case "pslite", "tensorflow":
			return r.throughServer()
		case "nvflare":
			return r.throughAverage()
		case "flower":
			return "models travel as differences to models that the other side holds, which may lose detail, and once for both hospitals: both must end with the same weights"
		}
		if r.NoFeedback {
			return "gradients may lose detail on their way by a method that is right on average; their sums arrive exactly, so both processes must end with the same weights"
		}
		return "gradients may lose detail on their way, which later steps make up for; their sums arrive exactly, so both processes must end with the same weights"
	}
	return "sums may lose detail too: the fewest bytes, but the two processes' weights drift a little apart"
}

// throughServer is the purpose of a run with loss on the way to a parameter server or back.
func (r Run) throughServer() string {
	to, back := "gradients arrive exactly", "weights come back exactly"
	if lossy(r.Gradients) {
		to = "gradients may lose detail on their way to the server, which later steps make up for"
	}
	if lossy(r.State) {
		back = "weights come back as differences to weights that the processes hold, which may lose detail too"
	}
	return to + "; " + back + ": both processes must end with the same weights"
}

// throughAverage is the purpose of a run with loss in changes of the weights, on the way to a server that adds their
// mean, or in models on the way back.
func (r Run) throughAverage() string {
	to, back := "changes of the weights arrive exactly", "models come back exactly"
	if lossy(r.Gradients) {
		to = "changes of the weights may lose detail on their way to the server, which later rounds make up for"
	}
	if lossy(r.State) {
		back = "models come back as differences to models that the hospitals hold, which may lose detail, once for both"
	}
	return to + "; " + back + ": both must end with the same weights"
}

// layout describes the places of the processes on a wire, and the wire's framework.
func layout(wire string) string {
	switch wire {
	case "gloo":
		return "one process at each site, on the wire of PyTorch's DistributedDataParallel with Gloo"
	case "pslite":
		return "both processes at one site, a parameter server at the other, on the wire of MXNet, ps-lite"
	case "tensorflow":
		return "both processes at one site, a parameter server at the other, on the wire of TensorFlow's SyncReplicasOptimizer"
	case "nvflare":
		return "two hospitals behind one uplink, a server at the other end that adds the mean of their changes to the model, on the wire of NVFlare"
	case "flower":
		return "two hospitals behind one uplink, a server that averages their models at the other end, on the wire of Flower"
	}
	return "on the wire of " + wire
}

// goodRatio is the ratio that the run with loss in the sums as well should reach.
const goodRatio = 5

// verdict compares a run with the direct one, and says whether the promise was kept.
func verdict(r Run, label string, result, direct Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, %s.", label, bytesSaid(result.Ratio), timeSaid(direct.Seconds/max(result.Seconds, 1e-9)))
	if r.Name == sumsToo {
		if result.Ratio > goodRatio {
			fmt.Fprintf(&b, " This is over %d times, as it should be.", goodRatio)
		} else {
			fmt.Fprintf(&b, " It should be over %d times, and IS NOT. (Everything travels exactly in the first two steps, and later any value that does not look like a sum of gradients; with more steps the first two weigh less.)", goodRatio)
		}
	}
	switch p := r.promise(); {
	case p == sameWeights && result.SameAsDirect:
		b.WriteString(" Checked: both processes end with the weights of the direct run, bit for bit.")
	case p == sameWeights:
		b.WriteString(" The weights ARE NOT the same as in the direct run, though nothing may be lost here.")
	case p == sameReplicas && result.ReplicasIdentical:
		fmt.Fprintf(&b, " Checked: both processes end with the same weights, bit for bit. %s.", accuracySaid(result, direct))
	case p == sameReplicas:
		fmt.Fprintf(&b, " The two processes' weights ARE NOT the same, though both were sent the same: they differ by %.2g of their norm.", result.ReplicaDistance)
	case result.ReplicaDistance < maxDistance:
		fmt.Fprintf(&b, " The two processes' weights differ by %.2g of their norm, less than %v, as it should be. %s.", result.ReplicaDistance, maxDistance, accuracySaid(result, direct))
	default:
		fmt.Fprintf(&b, " The two processes' weights differ by %.2g of their norm: it should be less than %v, and IS NOT. %s.", result.ReplicaDistance, maxDistance, accuracySaid(result, direct))
	}
	return strings.Join(wrap(b.String(), lineLen), "\n")
}

// bytesSaid says how many bytes a run has put on the WAN.
func bytesSaid(ratio float64) string {
	switch {
	case ratio >= 1.005:
		return fmt.Sprintf("%.3g times fewer bytes on the WAN", ratio)
	case ratio > 0.995:
		return "as many bytes on the WAN"
	}
	return fmt.Sprintf("%.3g times as many bytes on the WAN", 1/ratio)
}

// timeSaid says how a run's time compares.
func timeSaid(speedup float64) string {
	switch {
	case speedup >= 1.02:
		return fmt.Sprintf("%.3g times as fast", speedup)
	case speedup > 0.98:
		return "as fast"
	}
	return fmt.Sprintf("%.3g times as slow", 1/speedup)
}

// accuracySaid compares two runs' accuracy.
func accuracySaid(result, direct Result) string {
	return fmt.Sprintf("The classifier is right on %.1f %% of the test images, that of the direct run on %.1f %%", 100*result.Accuracy, 100*direct.Accuracy)
}
