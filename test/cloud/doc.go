// Package cloud runs the suite of every engine at the real service of E2B. Its
// tests need a key and cost money, so they are built with the tag e2b only:
// `make test-e2b`.
package cloud
