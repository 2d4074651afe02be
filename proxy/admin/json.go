package admin

import (
	"encoding/json"
	"net/http"
)

func writeJSON(w http.ResponseWriter, v any) {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	_ = e.Encode(v) // it fails only if the client has gone
}

// writeCompact is writeJSON for answers that programs read.
func writeCompact(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) }
