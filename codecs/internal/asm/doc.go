// Package asm holds the generator of the assembly kernels of tensor and codecs (gen, a module of its own, so that gradproxy does
// not depend on avo) and the helpers with which packages test theirs (asmtest).
package asm

//go:generate go -C gen run . ../../../..
