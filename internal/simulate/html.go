package simulate

import "io"

// HTML todo
func (r *Report) HTML(w io.Writer) error { return r.Text(w) }
