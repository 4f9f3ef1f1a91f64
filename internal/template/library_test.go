package template

import "testing"

func open(t *testing.T) *Library {
	t.Helper()
	l, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestEveryTemplateObeysTheFormat(t *testing.T) {
	for _, tag := range open(t).Tags() {
		t.Log(tag)
	}
}
