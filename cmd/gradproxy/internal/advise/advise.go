// Package advise chooses codecs for a job from the results of its proxy's shadow mode, and says why.
//
// For each job and role it takes the candidate that leaves fewest bytes, if that saves a tenth or more and one core
// codes it as fast as the job sends. It takes no candidate that the guard would stop or may stop at any time, nor one
// whose residual may still grow. The user has named the candidates, and with them the loss that is acceptable: finer
// ones are listed beside the choice.
package advise

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gradproxy/gradproxy/proxy/shadow"
	"github.com/gradproxy/gradproxy/proxy/trials"
	"github.com/gradproxy/gradproxy/tensor"
)

const (
	worthwhile = 0.9  // of the present bytes: a choice must leave less
	tolerated  = 0.01 // guarded blocks for each measured MB of the sample
)

// Advice is the result for a whole site. Its JSON names are stable.
type Advice struct {
	Choices []Choice `json:"choices"`
	Now     int64    `json:"wire_bytes"`      // that were handed to tunnels since the proxy began, of all peers and jobs
	Then    int64    `json:"predicted_bytes"` // in their place under the choices
	Raw     int64    `json:"raw_bytes"`
	Seconds float64  `json:"seconds"` // since the proxy began
	YAML    string   `json:"yaml"`    // rules to copy; "": nothing is better than the present configuration
}

// A Choice is the codec of one role of a job.
type Choice struct {
	Job     string   `json:"job"`
	Role    string   `json:"role"`
	Codec   string   `json:"codec"` // "": none of the candidates is better
	Why     string   `json:"why"`
	Raw     int64    `json:"raw_bytes"`
	Now     int64    `json:"wire_bytes"`
	Options []Option `json:"options"` // all candidates, fewest bytes first
}

// An Option is a candidate for a Choice.
type Option struct {
	Codec    string  `json:"codec"`
	Bytes    int64   `json:"predicted_bytes"`
	Error    float64 `json:"relative_error"`
	Residual float64 `json:"residual_ratio"`
	Coding   float64 `json:"core_share"` // of one core, at the rate at which the job sends while it sends
	Refused  string  `json:"refused,omitempty"`
	behind   float64 // guarded blocks for each MB
	early    float64 // part of the sample that came while the residual was still growing
	near     float64 // part of the sample whose residual is near the guard's limit
}

// Of chooses.
func Of(r *trials.Report) *Advice {
	a := &Advice{Choices: []Choice{}, Seconds: r.Seconds}
	type key struct{ job, role string }
	var keys []key
	groups := map[key][]trials.Group{}
	for _, g := range r.Groups {
		a.Raw, a.Now, a.Then = a.Raw+g.Raw, a.Now+g.Wire, a.Then+g.Wire
		if k := (key{g.Job, g.Role}); len(g.Candidates) > 0 {
			if groups[k] == nil {
				keys = append(keys, k)
			}
			groups[k] = append(groups[k], g)
		}
	}
	for _, k := range keys {
		c := choose(k.job, k.role, groups[k], r)
		if c.Codec != "" {
			a.Then += c.Options[slices.IndexFunc(c.Options, func(o Option) bool { return o.Codec == c.Codec })].Bytes - c.Now
		}
		a.Choices = append(a.Choices, c)
	}
	a.YAML = rules(a.Choices)
	return a
}

// choose chooses for one role of a job, over all peers.
func choose(job, role string, groups []trials.Group, r *trials.Report) Choice {
	c := Choice{Job: job, Role: role, Options: []Option{}}
	for _, g := range groups {
		c.Raw, c.Now = c.Raw+g.Raw, c.Now+g.Wire
	}
	for _, codec := range r.Codecs {
		if o, ok := option(codec, groups); ok {
			c.Options = append(c.Options, o)
		}
	}
	slices.SortStableFunc(c.Options, func(x, y Option) int { return cmp.Compare(x.Bytes, y.Bytes) })
	for i := range c.Options {
		o := &c.Options[i]
		switch {
		case o.behind > tolerated:
			o.Refused = "the guard would have blocks travel exactly, since receivers fall too far behind"
		case o.early > shadow.TolerablyEarly:
			o.Refused = "its residual may still grow, and with it the bytes: ask again once the job has sent more values"
		case o.near > shadow.TolerablyNear:
			o.Refused = "its residual is near the guard's limit, so the guard may have blocks travel exactly at any time"
		case float64(o.Bytes) > worthwhile*float64(c.Now):
			o.Refused = "it saves less than a tenth"
		case o.Coding > 1:
			o.Refused = "one core does not code as fast as the job sends"
		case c.Codec == "":
			c.Codec = o.Codec
			c.Why = fmt.Sprintf("%s leaves %.1f %% of the %s bytes that were handed to the tunnel (%.1f times fewer than the job's), with a relative error of %.2g%s, and takes %.2g of a core",
				o.Codec, 100*float64(o.Bytes)/float64(max(1, c.Now)), role, float64(c.Raw)/float64(max(1, o.Bytes)), o.Error, behind(o.Residual), o.Coding)
		}
	}
	switch {
	case len(c.Options) == 0:
		c.Why = "no candidate has coded tensors for all peers yet"
	case c.Codec == "":
		c.Why = "no candidate is better than the present way: " + refusals(c.Options)
	}
	return c
}

// behind says how far receivers are behind.
func behind(residual float64) string {
	if residual == 0 {
		return ""
	}
	return fmt.Sprintf(" (receivers are %.2g values behind)", residual)
}

func refusals(options []Option) string {
	var all []string
	for _, o := range options {
		all = append(all, o.Codec+": "+o.Refused)
	}
	return strings.Join(all, "; ")
}

// option sums up a candidate over groups; false: it has no results for one.
func option(codec string, groups []trials.Group) (o Option, ok bool) {
	o.Codec = codec
	var raw, sampled, grows, near float64
	for _, g := range groups {
		i := slices.IndexFunc(g.Candidates, func(x trials.Candidate) bool { return x.Codec == codec })
		if i < 0 {
			return o, false
		}
		x := &g.Candidates[i]
		share := float64(g.Raw)
		o.Bytes += x.Predicted
		o.Error += x.Error * share
		o.Residual += x.Residual * share
		if g.Moving > 0 {
			o.Coding += x.Coding / 1e9 * float64(g.Moved) / g.Moving
		}
		o.behind += float64(x.Behind)
		raw, sampled, grows, near = raw+share, sampled+float64(x.Raw), grows+float64(x.Early), near+float64(x.Near)
	}
	if raw == 0 {
		return o, false
	}
	o.Error, o.Residual = o.Error/raw, o.Residual/raw
	o.behind /= max(sampled/1e6, 1e-9)
	o.early, o.near = grows/max(sampled, 1), near/max(sampled, 1)
	return o, true
}

// rules writes the choices as rules of a policy.
func rules(choices []Choice) string {
	var b strings.Builder
	for _, c := range choices {
		if c.Codec == "" || c.Codec == "lossless" {
			continue
		}
		if b.Len() == 0 {
			b.WriteString("policy:\n")
		}
		b.WriteString("  - {")
		if c.Job != "" {
			fmt.Fprintf(&b, "job: %s, ", scalar(c.Job))
		}
		fmt.Fprintf(&b, "role: %s, min_bytes: 1024, codec: %q}\n", c.Role, c.Codec)
	}
	return b.String()
}

// word matches the texts that mean themselves in YAML, but for a few words.
var word = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)

// scalar writes a text as YAML reads it.
func scalar(text string) string {
	if word.MatchString(text) && !slices.Contains([]string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}, strings.ToLower(text)) {
		return text
	}
	return strconv.Quote(text)
}

// Lossless reports whether nothing that was sampled could have lost something: then roles lack proofs.
func Lossless(r *trials.Report) bool {
	for _, g := range r.Groups {
		if role, ok := tensor.ParseRole(g.Role); ok && role != tensor.Exact && role != tensor.Unknown && g.Raw > 0 {
			return false
		}
	}
	return true
}
