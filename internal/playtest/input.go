package playtest

import "github.com/chromedp/cdproto/input"

// key is one key of the keyboard.
type key struct {
	code, key, text string
	virtual         int64
}

var (
	keyRight = key{"ArrowRight", "ArrowRight", "", 39}
	keyLeft  = key{"ArrowLeft", "ArrowLeft", "", 37}
	keyUp    = key{"ArrowUp", "ArrowUp", "", 38}
	keyDown  = key{"ArrowDown", "ArrowDown", "", 40}
	keySpace = key{"Space", " ", " ", 32}
	keyEnter = key{"Enter", "Enter", "\r", 13}
	keyW     = key{"KeyW", "w", "w", 87}
	keyA     = key{"KeyA", "a", "a", 65}
	keyS     = key{"KeyS", "s", "s", 83}
	keyD     = key{"KeyD", "d", "d", 68}
)

func (t *tab) keys(down bool, keys ...key) error {
	for _, k := range keys {
		params := input.DispatchKeyEventParams{
			Type: input.DispatchKeyEventTypeKeyUp, Code: k.code, Key: k.key,
			WindowsVirtualKeyCode: k.virtual, NativeVirtualKeyCode: k.virtual,
		}
		if down {
			params.Type = input.DispatchKeyEventTypeRawKeyDown
			if k.text != "" {
				params.Type, params.Text, params.UnmodifiedText = input.DispatchKeyEventTypeKeyDown, k.text, k.text
			}
		}
		if _, err := call(t, input.DispatchKeyEvent, params); err != nil {
			return err
		}
	}
	return nil
}

// point is a place on the screen.
type point struct {
	X, Y  float64
	Label string
}

func (t *tab) mouse(kind input.DispatchMouseEventType, at point, held bool) error {
	params := input.DispatchMouseEventParams{Type: kind, X: at.X, Y: at.Y}
	if kind != input.DispatchMouseEventTypeMouseMoved || held {
		params.Button, params.ClickCount = input.MouseButtonLeft, 1
	}
	if held {
		params.Buttons = 1
	}
	_, err := call(t, input.DispatchMouseEvent, params)
	return err
}

// click moves there, presses and releases; on a touch screen it taps.
func (t *tab) click(at point) error {
	if t.screen.touch {
		if err := t.touch(input.DispatchTouchEventTypeTouchStart, at); err != nil {
			return err
		}
		return t.touch(input.DispatchTouchEventTypeTouchEnd)
	}
	if err := t.mouse(input.DispatchMouseEventTypeMouseMoved, at, false); err != nil {
		return err
	}
	if err := t.mouse(input.DispatchMouseEventTypeMousePressed, at, true); err != nil {
		return err
	}
	return t.mouse(input.DispatchMouseEventTypeMouseReleased, at, false)
}

func (t *tab) touch(kind input.DispatchTouchEventType, at ...point) error {
	points := []*input.TouchPoint{}
	for _, p := range at {
		points = append(points, &input.TouchPoint{X: p.X, Y: p.Y})
	}
	_, err := call(t, input.DispatchTouchEvent, input.DispatchTouchEventParams{Type: kind, TouchPoints: points})
	return err
}
