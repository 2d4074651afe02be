package demo

import (
	"context"
	"net"

	"github.com/gradproxy/gradproxy/parser/flower/flowersim"
)

// federated trains as Flower does with FedAvg: two hospitals at the near site train the server's model, each on images
// of its own, and send it back; the server at the far site averages their models. Each hospital tests the average, too.
func federated(ctx context.Context, r *run) (trained, error) {
	return federation[*flowersim.Client]{flowersim.Serve, joinFlower, averageModels}.train(ctx, r)
}

// joinFlower has a hospital answer the server's requests.
func joinFlower(ctx context.Context, conn net.Conn, h *hospital) error {
	return flowersim.Join(ctx, conn, h.answer)
}

// averageModels has every hospital train the model at the same time, and averages the results.
func averageModels(r *run, clients []*flowersim.Client) error {
	first, err := clients[0].Ask(flowersim.Message{Kind: flowersim.GetParameters})
	if err != nil {
		return err
	}
	model := first.Arrays
	for done := 0; done < r.Steps; done += localSteps {
		results, err := ask(clients, flowersim.Message{Kind: flowersim.Fit, Arrays: model})
		if err != nil {
			return err
		}
		if model, err = average(results); err != nil {
			return err
		}
		if _, err := ask(clients, flowersim.Message{Kind: flowersim.Evaluate, Arrays: model}); err != nil {
			return err
		}
	}
	return nil
}

// ask asks all hospitals, and returns the arrays of their answers.
func ask(clients []*flowersim.Client, m flowersim.Message) ([][][]float32, error) {
	return each(clients, func(c *flowersim.Client) ([][]float32, error) {
		answer, err := c.Ask(m)
		return answer.Arrays, err
	})
}

// answer answers a request of the server.
func (h *hospital) answer(m flowersim.Message) (flowersim.Message, error) {
	if m.Kind != flowersim.GetParameters {
		if err := h.set(m.Arrays); err != nil {
			return flowersim.Message{}, err
		}
	}
	switch m.Kind {
	case flowersim.Evaluate:
		return flowersim.Message{}, nil
	case flowersim.Fit:
		h.fit()
	}
	return flowersim.Message{Arrays: valuesOf(h.model)}, nil
}
