// Package nvflaresim speaks the wire of NVIDIA FLARE 2.9 with the driver "tcp" (a provisioned federation has "http" by
// default: masked WebSocket), for demos and tests: a server and the job processes of clients, which take a task, get
// its model, train, and have the server fetch the result. Its frames are the same with every driver. Package nvflare
// describes them.
//
//	client   server_command/get_task
//	server   the answer: a DXO that announces the arrays, with a ref_id
//	client   download_service__/download_service__download of that ref_id, from the first array on, until the answer has status eof
//	server   the answers: a list of files, of less than 2 MiB together or one
//	client   server_command/submit_update: a DXO that announces the result
//	server   downloads, which the client answers
//	server   the answer to submit_update
//
// Each message is a stream, acknowledged when it is whole; NVFlare acknowledges long ones every 4 or 16 MiB as well,
// and may send the frames of a stream out of order, and again after 5 s without acknowledgement. Registration,
// heartbeats, the question __task_check__ before a result, and the confirmation of a download are left out; they carry
// no arrays. So is the meta with which NVFlare tells a later round's model from the first one (nr_aggregated,
// current_round).
package nvflaresim

import "errors"

// Kinds of a DXO.
const (
	Weights     = "WEIGHTS"
	Differences = "WEIGHT_DIFF" // of weights: after training, minus before
	Metrics     = "METRICS"     // no arrays
)

// Tasks of a training.
const (
	Train    = "train"
	Validate = "validate"    // test the model, which is the last one
	End      = "__end_run__" // of the job
)

// An Array is an array of a model.
type Array struct {
	Name   string
	Values []float32
}

// A Shareable is a task of the server, or a client's result of it.
type Shareable struct {
	Task   string
	Round  int
	Kind   string
	Arrays []Array
}

var errMessage = errors.New("nvflaresim: not a message of NVFlare")
