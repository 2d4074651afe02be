// Package cache holds values of tensors at both ends of a tunnel, so that a value can be coded as its difference to the last one.
package cache
