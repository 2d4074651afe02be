package admin

import (
	"embed"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"slices"
	"strconv"

	"github.com/gradproxy/gradproxy/proxy"
	"github.com/gradproxy/gradproxy/proxy/history"
)

// The page is of files in the folder page alone; page/README.md says which of them are other people's, and under which
// licence.
//
//go:embed page
var embedded embed.FS

// contentPolicy has browsers take nothing for the page but its own files and this server's answers.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// pageFiles lists the files of the page by their paths in URLs.
var pageFiles = func() []string {
	all, err := fs.Glob(embedded, "page/*")
	if err != nil {
		panic(err) // the pattern is good
	}
	return all
}()

// file sends a file of the page.
func (c *Config) file(w http.ResponseWriter, name string) {
	text, err := embedded.ReadFile(name)
	if err != nil || !slices.Contains(pageFiles, name) {
		http.Error(w, "the page has no such file", http.StatusNotFound)
		return
	}
	kind := mime.TypeByExtension(path.Ext(name))
	switch path.Ext(name) { // whatever the host's table of types says
	case ".js":
		kind = "text/javascript; charset=utf-8"
	case ".css":
		kind = "text/css; charset=utf-8"
	case ".html":
		kind = "text/html; charset=utf-8"
	case ".svg":
		kind = "image/svg+xml"
	default:
		kind = "text/plain; charset=utf-8"
	}
	w.Header().Set("Content-Type", kind)
	_, _ = w.Write(text) // it fails only if the client has gone
}

func (c *Config) index(w http.ResponseWriter, _ *http.Request) { c.file(w, "page/index.html") }

func (c *Config) asset(w http.ResponseWriter, r *http.Request) {
	c.file(w, "page/"+r.PathValue("name"))
}

// live answers with Live.
func (c *Config) live(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	writeJSON(w, c.Live())
}

// history answers with a history.Table.
func (c *Config) history(w http.ResponseWriter, r *http.Request) {
	step, err := strconv.Atoi(r.URL.Query().Get("step"))
	if err != nil || !slices.Contains(history.Steps(), step) {
		http.Error(w, "step is the seconds of a slot: write 1, 10 or 240, as in /history?step=10", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	writeCompact(w, c.History(step))
}

// An Answer tells of one tensor.
type Answer struct {
	Tensor      proxy.TensorInfo `json:"tensor"`
	Explanation Explanation      `json:"explanation"`
	History     *TensorHistory   `json:"history,omitempty"` // nil: of a peer's tensor, or one that was never among the largest
}

// tensor answers with an Answer. With the query's peer it is a tensor that the peer sends here, from the newest of its
// halves.
func (c *Config) tensor(h *hub) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		id, err := strconv.ParseUint(q.Get("id"), 10, 64)
		if err != nil {
			http.Error(w, "id is the id of a tensor in /tensors, as in /tensor?id=7", http.StatusBadRequest)
			return
		}
		var a Answer
		found := false
		if peer := q.Get("peer"); peer != "" {
			if v := h.half(peer); v != nil {
				for _, t := range v.Tensors.Largest {
					if t.ID == id {
						a.Tensor, found = t, true
					}
				}
			}
		} else {
			a.Tensor, a.History, found = c.Tensor(id)
		}
		if !found {
			http.Error(w, "no tensor with that id is listed: ids begin anew with each process", http.StatusNotFound)
			return
		}
		a.Explanation = Explain(&a.Tensor, c.Lossy)
		w.Header().Set("Content-Type", "application/json")
		writeCompact(w, a)
	}
}
