// Package learn has the models of the papers' tables that the demo has no use for: linear models on sparse rows, a
// convolutional network, and the optimizers Adam and SVRG. The same seed gives the same bits on every run.
package learn
