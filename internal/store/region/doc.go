// Package region is the [store.Store] of a backend that has a parent: another backend, which keeps
// the limits that several regions share. Nodes ask their region, and the region asks the parent.
//
// The region's own store counts the hits of the region's nodes. The parent counts the hits of all
// regions. For each key, a second counter of the parent has the hits that it has granted to this
// region. So each side knows where the region stands, even if messages were lost or came twice:
//
//   - A take gets only hits that the parent has granted and that no node of the region has used.
//     The region asks for blocks of hits ahead of its nodes, and gives back hits that they do not
//     need.
//   - Once a second the region pushes the difference between the two counts. One push changes both
//     of the parent's counters, so hits arrive exactly once.
//
// A region can hold hits ahead only for windows of the clock and token buckets ([Holds]). It relays
// items and takes of other kinds to the parent, with the sender's own identity, and so those of the same
// keys.
package region
