package browser

var (
	themes = []string{"light", "dark"}
	widths = []int64{390, 820, 1440}
)
