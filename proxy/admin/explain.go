package admin

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/gradproxy/gradproxy/proxy"
)

// An Explanation says in sentences why a tensor travels as it does, and how the configuration could have it travel
// otherwise.
type Explanation struct {
	Why    string `json:"why"`
	Change string `json:"change,omitempty"` // the change and its price; "": there is none to make
	YAML   string `json:"yaml,omitempty"`   // of the configuration, to be copied; "": no key changes it
}

// Explain explains how a tensor travels. lossy: the codec may lose something.
func Explain(t *proxy.TensorInfo, lossy func(codec string) bool) Explanation {
	e := Explanation{Why: because(t)}
	switch {
	case t.Reason == "ok" && lossy(t.Codec):
		e.Change = "It can travel exactly again, from its next value on, with a rule before the one that names " + t.Codec + "."
		e.YAML = rule(t, "lossless")
	case t.Reason == "no rule":
		e = noRule(t, e)
	case t.Reason == "role unproved", t.Reason == "learning", t.Reason == "call not seen", t.Reason == "caller unclear":
		e = unproved(t, e)
	case t.Reason == "probe late":
		e.Change = "Nothing is to be done if this passes. If it stays so, see whether the process gradproxy-prober is stopped, or has no turn on a busy machine: the proxy's log tells since when."
	case t.Reason == "too small":
		e.Change = "Coding it would cost more than it saves. If it comes often, name it in a rule all the same."
		e.YAML = rule(t, "lossless")
	case t.Reason == "no memory":
		e.Change = "Give residuals, which error feedback needs, more memory. The default is 1GiB: if the file names more than that, double it. It takes a restart or an upgrade of the proxy."
		e.YAML = "state: {memory: 2GiB} # merge into state, if the file has it\n"
	case t.Reason == "no reference" && t.Role == "state":
		e.Change = "Differences need room for the values that both ends hold, at both sites. The default is 512MiB: if the file names more than 1GiB, double it. It takes a restart or an upgrade of the proxy."
		e.YAML = "references: 2GiB\n"
	case (t.Reason == "guarded" || t.Reason == "implausible") && (t.Role == "unknown" || t.Role == "exact"):
		// The tensor has lost its role, without which no line lets it lose anything.
	case t.Reason == "implausible":
		e.Change = "Nothing is to be done if this passes, and no other codec helps: values are compared before they are coded. If it comes often, the values are perhaps no gradients, or hardly change from step to step: have it travel exactly."
		e.YAML = rule(t, "lossless")
	case t.Reason == "guarded" && strings.HasPrefix(t.Codec, "int8"):
		e.Change = "It has the finest of the lossy codecs already. If this comes often, have it travel exactly."
		e.YAML = rule(t, "lossless")
	case t.Reason == "guarded":
		e.Change = "A finer codec keeps receivers closer to the sent values."
		e.YAML = rule(t, "int8")
	case t.Reason == "peer lacks codec":
		e.Change = "Upgrade the proxy of " + t.Peer + ", or name a codec that it has."
	case t.Reason == "ranks unknown":
		e.Change = "Say how many ranks the job has."
		e.YAML = job(t, "ranks: 4")
	case t.Reason == "no gain" && t.Codec == "verbatim":
		e.Change = "Only a lossy codec could make it smaller."
		if t.Role == "gradient" {
			e.YAML = rule(t, "int4")
		}
	}
	return e
}

// noRule explains a tensor that no rule of the policy names.
func noRule(t *proxy.TensorInfo, e Explanation) Explanation {
	switch t.Role {
	case "gradient":
		e.Change = "A rule may let it lose precision, with error feedback: int4 loses little, 3lc sends far fewer bytes and loses more."
		e.YAML = rule(t, "int4")
	case "aggregate":
		e.Change = "All replicas receive this sum. If it may lose something, replicas differ a little: measure the accuracy before you rely on it."
		e.YAML = job(t, "aggregates: lossy") + rule(t, "int4")
	case "state":
		e.Change = "Weights may travel as lossy differences to the value that the receiver holds; the loss of one is in the next."
		e.YAML = rule(t, "int8")
	case "unknown":
		return unproved(t, e)
	}
	return e
}

// unproved explains a tensor whose role is not known.
func unproved(t *proxy.TensorInfo, e Explanation) Explanation {
	switch {
	case t.Reason == "learning":
		e.Change = "Nothing is to be done: a few more steps will tell."
	case t.Protocol == "gloo" && t.Reason == "no rule":
		e.Change = "Where no rule names a codec for gradients, write one first: only then does the proxy look for the proof in the job's process, for which it must run on the job's own host with CAP_BPF. Where that cannot be, and only if every sum of the job is one of gradients, say so as well."
		gradient := *t
		gradient.Role = "gradient"
		e.YAML = rule(&gradient, "int4") + job(t, "sums: gradients")
	case t.Protocol == "gloo":
		e.Change = "Run the proxy on the job's own host with CAP_BPF, so that it sees the process call DistributedDataParallel. Where that cannot be, and only if every sum of the job is one of gradients, say so."
		e.YAML = job(t, "sums: gradients")
	case t.Protocol == "tensorflow":
		e.Change = "If every sum of the job is one of gradients, say so."
		e.YAML = job(t, "sums: gradients")
	case t.Reason == "role unproved":
		e.Change = "Start the job after the proxies, so that they see its first messages, which tell the roles of later ones."
	}
	return e
}

// because returns the reason of a tensor as a sentence.
func because(t *proxy.TensorInfo) string {
	text, ok := map[string]string{
		"ok":                 "A rule of the policy names its codec, and the proof of its role allows that.",
		"no rule":            "No rule of the policy matches it, so it loses nothing.",
		"role unproved":      "Nothing on the wire proves that it is a gradient or weights, so it loses nothing.",
		"dtype unknown":      "The protocol does not tell the type of its elements, so only lossless coding is possible.",
		"implausible":        "A block did not look like the next gradient after this tensor's earlier values and results, so it travelled exactly.",
		"stalled":            "The rest of a block did not come in time, so the block left as it was.",
		"no gain":            "Coding did not make it smaller, or took longer than the saved bytes take on this link.",
		"no reference":       "The peer does not hold a value to which a difference could be taken.",
		"peer lacks codec":   "The proxy at the other end does not have the codec that the rule names.",
		"too small":          "It is so small that headers would outweigh the gain.",
		"no memory":          "The memory for residuals is spent, so it loses nothing.",
		"learning":           "The parser must see more steps before it can prove the role.",
		"call not seen":      "The job's process is watched, but it was not seen to call this collective.",
		"other caller":       "Other code than DistributedDataParallel calls this collective, so it may be no gradient.",
		"no sum":             "The process was seen to call this collective, and it is no sum of floats.",
		"caller unclear":     "Several process groups may have made this call, and they disagree.",
		"ranks unknown":      "DistributedDataParallel calls this collective, but the number of ranks is not known.",
		"calls contradicted": "The connection has carried something else than the process has called, so it loses nothing.",
		"probe late":         "The process that probes did not answer in time, so it is not known which collective the job's process called, and the value travels exactly.",
		"contested":          "Other sums of a step have the same size, so its place does not tell it from them.",
		"job doubted":        "Another sum of this job was found to be no gradient, so nothing of the job loses anything.",
		"guarded":            "Receivers were too far behind, so it travels exactly for a while.",
		"checksum":           "A checksum comes with it, which the codec, or these values, cannot keep right.",
	}[t.Reason]
	switch {
	case t.Reason == "no rule" && t.Role == "exact":
		return "It holds keys, lengths, first values or the like, which must arrive as they were sent."
	case t.Reason == "ok" && t.Codec == "lossless", t.Reason == "ok" && t.Codec == "verbatim":
		return "A rule of the policy has it travel like this."
	case ok:
		return text
	}
	return "The reason is: " + t.Reason + "."
}

// rule writes a rule of the policy that matches the tensor and its like.
func rule(t *proxy.TensorInfo, codec string) string {
	var parts []string
	if t.Job != "" {
		parts = append(parts, "job: "+quote(t.Job))
	}
	if t.Protocol != "" {
		parts = append(parts, "protocol: "+t.Protocol)
	}
	parts = append(parts, "role: "+t.Role)
	if t.Role == "unknown" || t.Role == "exact" {
		parts = append(parts, fmt.Sprintf("min_bytes: %d", t.Bytes), fmt.Sprintf("max_bytes: %d", t.Bytes))
	}
	return fmt.Sprintf("policy: # merge into policy: put this rule before the others\n  - {%s, codec: %q}\n", strings.Join(parts, ", "), codec)
}

// job writes a key of the tensor's job. A job that is not named yet has the networks of both ends, as far as their
// addresses are known.
func job(t *proxy.TensorInfo, setting string) string {
	if t.Job != "" {
		return fmt.Sprintf("jobs: # merge into jobs: to the line of this job add the last key\n  - {name: %s, %s}\n", quote(t.Job), setting)
	}
	networks := []string{}
	for i, end := range [2]string{t.From, t.To} {
		a := t.Hosts[i]
		if !a.IsValid() { // the tensor is of a peer's list
			a = addressIn(end)
		}
		if a.IsValid() {
			networks = append(networks, strconv.Quote(netip.PrefixFrom(a.WithZone(""), a.BitLen()).String()))
		}
	}
	if len(networks) < 2 {
		networks = []string{"10.0.0.0/8"}
	}
	return fmt.Sprintf("jobs: # merge into jobs; networks: all of the job's hosts\n  - {name: mine, networks: [%s], %s}\n", strings.Join(networks, ", "), setting)
}

// addressIn returns the address that an end is named by, with a port or without; the zero Addr: it has another name.
func addressIn(end string) netip.Addr {
	if a, err := netip.ParseAddrPort(end); err == nil {
		return a.Addr()
	}
	a, _ := netip.ParseAddr(end)
	return a
}

// quote writes a name as YAML. Names of this site's configuration need no quotes; a peer could send others.
func quote(name string) string {
	for _, r := range name {
		if !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.') {
			return fmt.Sprintf("%q", name)
		}
	}
	return name
}
