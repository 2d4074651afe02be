package tensorflow

// An edgeRole is the meaning of an edge's tensor in a graph.
type edgeRole uint8

const (
	unclear  edgeRole = iota // anything else, or several of these at once
	gradient                 // an optimizer's input for the gradient, or an accumulator's
	rows                     // the same, of the rows of a sparse gradient
	descent                  // scaled, and subtracted from rows of a variable
	update                   // added to a variable, or subtracted from one: gradients and sums of metrics alike
	assigned                 // a variable's new value
	read                     // a variable's value
	gathered                 // rows of a variable
)

// An op is an operation of the graph, as far as it matters to roles.
type op struct {
	kind opKind
	at   int // the input for the gradient, or the value
}

// An opKind says how the inputs of an operation go on.
type opKind uint8

const (
	opaque          opKind = iota // nobody knows
	send                          // to another device
	receive                       // from another device
	same                          // the elements of input 0, or of all inputs, in another form
	sums                          // sums of rows of input 0
	dimensions                    // the shape of the input, which says nothing of its elements
	scales                        // a multiple of an input
	computes                      // another value
	variable                      // a variable, or its value
	gathers                       // rows of input 0
	gathersResource               // rows of a variable, whose handle is input 0
	applies                       // an optimizer takes the gradient as input at
	appliesRows
	scatterSubtracts // from rows of a variable
	adds             // to a variable
	assigns
)

// ops lists operations by their names (tensorflow/core/ops/*.cc, of TensorFlow 2.21).
var ops = listOps()

func listOps() map[string]op {
	all := map[string]op{
		"_Send": {send, 0}, "_HostSend": {send, 0}, "_Recv": {receive, 0}, "_HostRecv": {receive, 0},
		"Identity": {same, -1}, "IdentityN": {same, -1}, "StopGradient": {same, 0}, "Cast": {same, 0}, "Reshape": {same, 0},
		"UnsortedSegmentSum": {sums, 0},
		"Shape":              {dimensions, 0}, "ShapeN": {dimensions, 0}, "Size": {dimensions, 0}, "Rank": {dimensions, 0},
		"Neg": {scales, -1}, "Mul": {scales, -1}, "RealDiv": {scales, 0},
		"VariableV2": {variable, 0}, "Variable": {variable, 0}, "ReadVariableOp": {variable, 0},
		"ResourceGather": {gathersResource, 0}, "GatherV2": {gathers, 0}, "Gather": {gathers, 0},
		"AccumulatorApplyGradient": {applies, 2}, "ResourceAccumulatorApplyGradient": {applies, 2}, "SparseAccumulatorApplyGradient": {appliesRows, 3},
		"ScatterSub": {scatterSubtracts, 2}, "ResourceScatterSub": {scatterSubtracts, 2},
		"ScatterAdd": {adds, 2}, "ResourceScatterAdd": {adds, 2},
		"AssignAdd": {adds, 1}, "AssignSub": {adds, 1}, "AssignAddVariableOp": {adds, 1}, "AssignSubVariableOp": {adds, 1},
		"Assign": {assigns, 1}, "AssignVariableOp": {assigns, 1},
	}
	for _, name := range []string{"Square", "Sub", "Add", "AddV2", "AddN", "Sqrt", "Rsqrt", "Pow", "Div", "Maximum", "Minimum", "Sign", "Reciprocal"} {
		all[name] = op{computes, -1}
	}
	for name, at := range map[string]int{
		"GradientDescent": 2, "Momentum": 3, "KerasMomentum": 3, "Adagrad": 3, "Ftrl": 3, "FtrlV2": 3, "AdagradV2": 4, "ProximalGradientDescent": 4,
		"ProximalAdagrad": 5, "Adadelta": 6, "AddSign": 6, "PowerSign": 6, "RMSProp": 7, "CenteredRMSProp": 8, "AdaMax": 8, "Adam": 9,
	} {
		all["Apply"+name], all["ResourceApply"+name] = op{applies, at}, op{applies, at}
	}
	for name, at := range map[string]int{
		"Momentum": 3, "KerasMomentum": 3, "Adagrad": 3, "Ftrl": 3, "FtrlV2": 3, "AdagradV2": 4, "ProximalGradientDescent": 4, "Adadelta": 6, "RMSProp": 7,
	} {
		all["SparseApply"+name], all["ResourceSparseApply"+name] = op{appliesRows, at}, op{appliesRows, at}
	}
	return all
}
