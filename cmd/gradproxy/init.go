package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/config"
	"github.com/gradproxy/gradproxy/cmd/gradproxy/internal/setup"
)

// A made is the output of init --json. Its names are stable.
type made struct {
	Files []setup.File `json:"files"` // that were written
}

func initCommand() *cobra.Command {
	var q questions
	var output, domain string
	var jobs []string
	var force, asJSON bool
	c := &cobra.Command{
		Use:   "init",
		Short: "Ask four questions, and write the configuration and certificates of two sites",
		Long: `Ask four questions, and write for each of two sites a folder with its configuration, certificate and key, to be copied to
/etc/gradproxy there. A question whose flag is given is not asked. In each flag of a question the two sites' parts are separated by a comma.

Jobs that share the sites have a name each, by which figures and rules tell them apart, and networks of their own at both sites (--job, once for each).`,
		Example: `  gradproxy init
  gradproxy init --sites paris,tokyo --addresses paris.example,- --networks 10.1.0.0/16,10.2.0.0/16 --loss nothing
  gradproxy init --loss gradients --job resnet=10.1.3.0/24,10.2.3.0/24 --job bert=10.1.4.0/24,10.2.4.0/24`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			q.in, q.out = bufio.NewScanner(c.InOrStdin()), c.ErrOrStderr()
			plan, err := q.plan()
			if err != nil {
				return err
			}
			plan.Domain = domain
			if plan.Jobs, err = namedJobs(jobs); err == nil {
				err = plan.CheckJobs()
			}
			if err != nil {
				return usagef("--job: %v", err)
			}
			files, err := setup.Write(output, plan, force)
			if err != nil {
				return certError(err)
			}
			if err := fits(c, output, plan); err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), made{files})
			}
			return tell(c.OutOrStdout(), output, plan, files)
		},
	}
	c.Flags().StringVar(&q.sites, "sites", "", "names of the two sites, such as paris,tokyo")
	c.Flags().StringVar(&q.addresses, "addresses", "", "address of each as the other reaches it, host or host:port; - for one that cannot be reached, and dials")
	c.Flags().StringVar(&q.networks, "networks", "", "network of each one's hosts, such as 10.1.0.0/16,10.2.0.0/16; - for the address alone")
	c.Flags().StringVar(&q.loss, "loss", "", "tensors that may lose precision: "+strings.Join(setup.Losses, ", ")+" (of gradients)")
	c.Flags().StringArrayVar(&jobs, "job", nil, "a job's NAME, or NAME=NETWORK,NETWORK: those of its hosts; may be repeated (default: one job, if something may be lost)")
	c.Flags().StringVar(&output, "output", ".", "folder in which the sites' folders are made")
	c.Flags().StringVar(&domain, "domain", "training", "trust domain, the first part of the sites' ids")
	c.Flags().BoolVar(&force, "force", false, "write over the sites' files if they exist")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// fits checks the written files as gradproxy check does, and prints the warnings of that check. An error is a defect of
// gradproxy, or a port or name that no configuration may have.
func fits(c *cobra.Command, output string, plan setup.Plan) error {
	var sites []*config.Config
	var errs, warned config.Problems
	for _, s := range plan.Sites {
		r, cfg := checkFile(filepath.Join(output, s.Name, setup.ConfigName), false, true)
		errs, warned = append(errs, r.Errors...), append(warned, r.Warnings...)
		sites = append(sites, cfg)
	}
	if len(errs) == 0 {
		both := config.Together(sites)
		errs, warned = both.Errors(), append(warned, both.Warnings()...)
	}
	warnings(c, warned)
	if len(errs) > 0 {
		return &usageError{errs}
	}
	return nil
}

// tell lists the files, and the next steps.
func tell(w io.Writer, output string, plan setup.Plan, files []setup.File) error {
	var b strings.Builder
	for _, f := range files {
		fmt.Fprintf(&b, "made %s: %s\n", f.Path, f.Use)
	}
	for _, s := range plan.Sites {
		fmt.Fprintf(&b, "copy %s to /etc/gradproxy at %s\n", filepath.Join(output, s.Name, "*"), s.Name)
	}
	b.WriteString("then, at both sites: systemctl enable --now gradproxy && gradproxy ready --wait 1m\n")
	b.WriteString("without the package, start each proxy as root; sites that are network namespaces of one host need no copy:\n")
	for _, s := range plan.Sites {
		fmt.Fprintf(&b, "  at %s: gradproxy run -c %s\n", s.Name, filepath.Join(output, s.Name, setup.ConfigName))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// namedJobs reads the values of --job.
func namedJobs(texts []string) (jobs []setup.Job, err error) {
	for _, text := range texts {
		name, networks, some := strings.Cut(text, "=")
		if err := config.CheckName(name); err != nil {
			return nil, err
		}
		j := setup.Job{Name: name}
		for network := range strings.SplitSeq(networks, ",") {
			if !some {
				break
			}
			n, err := netip.ParsePrefix(network)
			if err != nil || n != n.Masked() {
				return nil, fmt.Errorf("%q is not a network: write %s=10.1.3.0/24,10.2.3.0/24", network, name)
			}
			j.Networks = append(j.Networks, n)
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// questions are asked of the user, one for each answer that is empty.
type questions struct {
	sites, addresses, networks, loss string

	in  *bufio.Scanner
	out io.Writer
}

// plan asks, and reads the answers. A question whose answer cannot be is asked again.
func (q *questions) plan() (p setup.Plan, err error) {
	err = q.settle(q.sites, "--sites", "What are the two sites called? For example: paris tokyo", "", func(text string) error {
		names, err := twoWords("--sites", text)
		if err != nil {
			return err
		}
		for i, name := range names {
			if err := config.CheckName(name); err != nil {
				return usagef("--sites: %v", err)
			}
			p.Sites[i].Name = name
		}
		return p.CheckNames()
	})
	if err != nil {
		return p, err
	}
	var alone [2]string // the networks of the addresses themselves
	err = q.settle(q.addresses, "--addresses", fmt.Sprintf("At which address does each reach the other, %s first? A name or IP, and a port if it is not 7443; - for a site that cannot be reached", p.Sites[0].Name), "", func(text string) error {
		addresses, err := twoWords("--addresses", text)
		if err != nil {
			return err
		}
		for i, a := range addresses {
			if p.Sites[i].Address, alone[i] = a, ownNetwork(a); a == "-" {
				p.Sites[i].Address = ""
			}
		}
		return p.CheckAddresses()
	})
	if err != nil {
		return p, err
	}
	offer := ""
	if alone[0] != "" && alone[1] != "" {
		offer = alone[0] + " " + alone[1]
	}
	err = q.settle(q.networks, "--networks", "In which network are the job's hosts, at each? For example: 10.1.0.0/16 10.2.0.0/16", offer, func(text string) error {
		networks, err := twoWords("--networks", text)
		if err != nil {
			return err
		}
		for i, text := range networks {
			if text == "-" {
				text = alone[i]
			}
			n, err := netip.ParsePrefix(text)
			if err != nil || n != n.Masked() {
				return usagef("--networks: %q is not a network: write it as 10.1.0.0/16", text)
			}
			p.Sites[i].Networks = []netip.Prefix{n}
		}
		return p.CheckNetworks()
	})
	if err != nil {
		return p, err
	}
	return p, q.settle(q.loss, "--loss", "What may lose precision: nothing, gradients, or gradients and their sums (sums)?", "nothing", func(text string) error {
		p.Loss = text
		return p.CheckLoss()
	})
}

// settle asks a question until take finds no fault with the answer. given is the answer that a flag has given: it is
// asked for no other.
func (q *questions) settle(given, flag, question, offer string, take func(text string) error) error {
	for {
		text, err := q.ask(given, flag, question, offer)
		if err != nil {
			return err
		}
		if err = take(text); err == nil {
			return nil
		}
		if given != "" {
			if usage := (*usageError)(nil); errors.As(err, &usage) {
				return err
			}
			return &usageError{err}
		}
		fmt.Fprintln(q.out, strings.TrimPrefix(err.Error(), flag+": "))
	}
}

// ownNetwork returns the network of an address alone; "": it is a name, or none.
func ownNetwork(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	a, err := netip.ParseAddr(strings.Trim(address, "[]"))
	if err != nil {
		return ""
	}
	return netip.PrefixFrom(a, a.BitLen()).String()
}

// twoWords returns the two words of the answer that a flag has, or would have.
func twoWords(flag, text string) (two [2]string, err error) {
	words := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' })
	if len(words) != 2 {
		return two, usagef("%s: %q has %d parts: write one for each of the two sites", flag, text, len(words))
	}
	return [2]string(words), nil
}

// ask asks a question, unless its flag has given the answer. An empty line means the offer.
func (q *questions) ask(given, flag, question, offer string) (string, error) {
	if given != "" {
		return given, nil
	}
	for {
		if offer != "" {
			fmt.Fprintf(q.out, "%s [%s]\n> ", question, offer)
		} else {
			fmt.Fprintf(q.out, "%s\n> ", question)
		}
		if !q.in.Scan() {
			return "", errors.Join(q.in.Err(), usagef("no answer: give %s", flag))
		}
		if text := strings.TrimSpace(q.in.Text()); text != "" {
			return text, nil
		}
		if offer != "" {
			return offer, nil
		}
	}
}
