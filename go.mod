module github.com/gradproxy/gradproxy

go 1.26
