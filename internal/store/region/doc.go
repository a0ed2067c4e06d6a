// Package region is a [store.Store] of a backend that has a parent: another backend, which keeps the
// limits of several regions together. Its nodes ask the region, and the region asks the parent.
//
// The region's own store counts the hits of the region's nodes. The parent counts those of all, and
// beside them, in a counter of the region's own, how many of these the region has got. So each side
// knows by itself where the region stands, whatever was lost or came twice on the way:
//
//   - A take gets no more than what the parent has granted and no node here has used. The region asks
//     for hits ahead of its nodes, in blocks, and gives back those that they do not need.
//   - Once a second the region pushes by how much the two counts differ: both of the parent's counters
//     change in one push, so that hits arrive exactly once.
//
// Only windows of the clock and token buckets can be held ahead ([Holds]). The region relays items and
// takes of other kinds to the parent, under the sender's own number.
package region
