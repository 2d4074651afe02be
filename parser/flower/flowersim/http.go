package flowersim

import "fmt"

// Post returns an HTTP request of a node to the fleet's method.
func Post(method string, body []byte) []byte {
	return append([]byte(fmt.Sprintf("POST /v1/fleet/%s HTTP/1.1\r\nHost: a\r\ncontent-type: application/protobuf\r\nContent-Length: %d\r\n\r\n", method, len(body))), body...)
}

// OK returns the response to it.
func OK(body []byte) []byte {
	return append([]byte(fmt.Sprintf("HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-length: %d\r\n\r\n", len(body))), body...)
}
