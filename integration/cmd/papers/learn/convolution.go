package learn

import (
	"fmt"
	"math/rand/v2"

	"github.com/gradproxy/gradproxy/cmd/gradproxy/train/layer"
)

const (
	filter = 3                // width and height of a filter; the image is padded by zeros to keep its size
	window = 2                // width and height of a pool, which keeps its greatest value
	area   = filter * filter  // weights of a filter for one channel
	reach  = (filter - 1) / 2 // pixels beyond the edge that a filter sees
)

// A convolution is a layer of filters, ReLU and max pooling.
type convolution struct {
	inputs, outputs, side int // channels, channels, width and height of its images

	weight, weightGrad layer.Matrix // [outputs][inputs * area]
	bias, biasGrad     []float32

	batch []convolved
}

// convolved has the layer's results for one image of the batch.
type convolved struct {
	patches, patchesT layer.Matrix // [inputs * area][pixels]: the value that each weight is multiplied by, for each pixel; and transposed
	out               layer.Matrix // [outputs][pixels], before ReLU
	delta             layer.Matrix // d loss / d out
	pooled            []float32    // [outputs][side/2][side/2], after ReLU
	from              []int32      // the index in out of each of pooled
}

func newConvolution(rng *rand.Rand, inputs, outputs, side int) convolution {
	c := convolution{
		inputs: inputs, outputs: outputs, side: side,
		weight: layer.NewMatrix(outputs, inputs*area), weightGrad: layer.NewMatrix(outputs, inputs*area),
		bias: make([]float32, outputs), biasGrad: make([]float32, outputs),
	}
	layer.Draw(rng, c.weight)
	return c
}

func (c *convolution) params(i int) []layer.Param {
	return []layer.Param{
		{Name: fmt.Sprintf("%d.weight", i), Shape: []int{c.outputs, c.inputs, filter, filter}, Value: c.weight.At, Grad: c.weightGrad.At},
		{Name: fmt.Sprintf("%d.bias", i), Shape: []int{c.outputs}, Value: c.bias, Grad: c.biasGrad},
	}
}

// pixels returns how many values an image has in a channel.
func (c *convolution) pixels() int { return c.side * c.side }

// forward runs the i-th image of a batch and returns its pooled values, valid until the next call for i.
func (c *convolution) forward(i int, image []float32, sum *layer.Combination) []float32 {
	for len(c.batch) <= i {
		rows, pixels := c.inputs*area, c.pixels()
		c.batch = append(c.batch, convolved{
			patches: layer.NewMatrix(rows, pixels), patchesT: layer.NewMatrix(pixels, rows),
			out: layer.NewMatrix(c.outputs, pixels), delta: layer.NewMatrix(c.outputs, pixels),
			pooled: make([]float32, c.outputs*pixels/(window*window)),
			from:   make([]int32, c.outputs*pixels/(window*window)),
		})
	}
	b := &c.batch[i]
	c.cut(b.patches, image)
	b.patchesT.Transpose(b.patches)
	layer.Affine(b.out, c.weight, b.patches, c.bias, sum)
	c.pool(b)
	return b.pooled
}

// cut sets patches to the image as each weight of a filter sees it: moved, with zeros beyond the edges.
func (c *convolution) cut(patches layer.Matrix, image []float32) {
	for k := range c.inputs * area {
		channel := image[k/area*c.pixels():][:c.pixels()]
		seen := patches.Row(k)
		down, right := k%area/filter-reach, k%filter-reach
		clear(seen)
		for y := max(0, -down); y < min(c.side, c.side-down); y++ {
			x0, x1 := max(0, -right), min(c.side, c.side-right)
			copy(seen[y*c.side+x0:y*c.side+x1], channel[(y+down)*c.side+x0+right:])
		}
	}
}

// pool sets pooled to the greatest value of each window of out, or 0.
func (c *convolution) pool(b *convolved) {
	at := 0
	for o := range c.outputs {
		for y := 0; y < c.side; y += window {
			for x := 0; x < c.side; x += window {
				corner := o*c.pixels() + y*c.side + x
				best := corner
				for _, p := range [...]int{corner + 1, corner + c.side, corner + c.side + 1} {
					if b.out.At[p] > b.out.At[best] {
						best = p
					}
				}
				b.pooled[at], b.from[at] = max(b.out.At[best], 0), int32(best)
				at++
			}
		}
	}
}

// setDelta sets the i-th image's d loss / d out from d loss / d pooled.
func (c *convolution) setDelta(i int, pooled []float32) {
	b := &c.batch[i]
	clear(b.delta.At)
	for j, d := range pooled {
		if b.pooled[j] > 0 {
			b.delta.At[b.from[j]] = d
		}
	}
}

// gradients sums up d loss / d bias and d loss / d weight over n images.
func (c *convolution) gradients(n int, sum *layer.Combination) {
	clear(c.biasGrad)
	clear(c.weightGrad.At)
	for i := range n {
		b := &c.batch[i]
		for o := range c.outputs {
			sum.Reset()
			for p, d := range b.delta.Row(o) {
				sum.Add(p, d)
				c.biasGrad[o] += d
			}
			sum.AddTo(c.weightGrad.Row(o), b.patchesT)
		}
	}
}

// backward sets image to d loss / d of the i-th image that came in.
func (c *convolution) backward(i int, image []float32, sum *layer.Combination) {
	b := &c.batch[i]
	clear(image)
	seen := make([]float32, c.pixels())
	for k := range c.inputs * area {
		clear(seen)
		sum.Reset()
		for o := range c.outputs {
			sum.Add(o, c.weight.Row(o)[k])
		}
		sum.AddTo(seen, b.delta)
		channel := image[k/area*c.pixels():][:c.pixels()]
		down, right := k%area/filter-reach, k%filter-reach
		for y := max(0, -down); y < min(c.side, c.side-down); y++ {
			x0, x1 := max(0, -right), min(c.side, c.side-right)
			to := channel[(y+down)*c.side+x0+right:]
			for j, d := range seen[y*c.side+x0 : y*c.side+x1] {
				to[j] += d
			}
		}
	}
}
