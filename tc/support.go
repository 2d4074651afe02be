package tc

// Support lists the features of the running kernel, by its modules' names where they have one.
type Support struct {
	TBF       bool `json:"tbf"`
	HTB       bool `json:"htb"` // with u32 filters
	Netem     bool `json:"netem"`
	NetemSeed bool `json:"netem_seed"` // netem takes a seed: Linux 6.6 and later
	FQ        bool `json:"fq"`
	Clsact    bool `json:"clsact"`
	BPF       bool `json:"bpf"` // programs at a clsact: Linux 5.12 and later
	IFB       bool `json:"ifb"` // and the redirection to it: u32, mirred
}
