package cost

import "fmt"

// NetworkOf is a network of a machine's description, in Gb/s, with the latency of RDMA.
func NetworkOf(gbps float64) Network {
	return Network{fmt.Sprintf("%g Gb/s, as described", gbps), gbps * 1e9 / 8 * 0.9, 2e-6, "line rate less 10 %"}
}

// AllReduce is the time to add up n bytes over ranks by a ring (Patarasuk and Yuan 2009): 2(ranks-1) messages of n/ranks.
func (w Network) AllReduce(n float64, ranks int) float64 {
	if ranks < 2 {
		return 0
	}
	r := float64(ranks)
	return 2 * (r - 1) * (n/r/w.Bytes + w.Latency)
}

// Exchange is the time that tensor-parallel ranks add up hidden states, for walks of so many rows: two sums of float32 in each layer.
func (m *Model) Exchange(w Network, rows, ranks int) float64 {
	return 2 * float64(m.Layers()) * w.AllReduce(4*float64(m.Hidden())*float64(rows), ranks)
}

// GradientSum is the time that data-parallel training adds up the gradients of one step.
func (m *Model) GradientSum(w Network, ranks int) float64 {
	return w.AllReduce(gradientBytes*m.Params(), ranks)
}
