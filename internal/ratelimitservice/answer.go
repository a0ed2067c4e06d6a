package ratelimitservice

import (
	"math"
	"strconv"
	"strings"
	"time"

	"weir/internal/fields"
	"weir/ratelimit"
	"weir/window"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
)

// Headers are the names of the response headers that describe the tightest limit.
type Headers struct{ Limit, Remaining, Reset string }

// answer describes the decisions on all descriptors.
func (s *Service) answer(r *pb.RateLimitRequest, all []asked) *pb.RateLimitResponse {
	response := &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OK, Statuses: make([]*pb.RateLimitResponse_DescriptorStatus, len(all))}
	// A limit of quota_mode refuses only if all other such limits do too.
	refused, quotas, spent := false, 0, 0
	for i := range all {
		a := &all[i]
		status := a.status()
		response.Statuses[i] = status
		over := status.Code == pb.RateLimitResponse_OVER_LIMIT
		switch {
		case !a.limited():
		case s.options.Quota || a.limit.quota:
			if quotas++; over {
				spent++
			}
		case over:
			refused = true
		}
	}
	if (refused || quotas > 0 && quotas == spent) && !s.options.Shadow {
		response.OverallCode = pb.RateLimitResponse_OVER_LIMIT
	}
	if h := s.options.Headers; h != nil {
		response.ResponseHeadersToAdd = h.describe(s.tightest(all, response.Statuses))
	}
	if s.options.Fields != 0 {
		response.ResponseHeadersToAdd = append(response.ResponseHeadersToAdd, s.fields(r, all, response)...)
	}
	if s.options.Metadata {
		response.DynamicMetadata = metadata(r, all, response.Statuses)
	}
	return response
}

func (a *asked) status() *pb.RateLimitResponse_DescriptorStatus {
	status := &pb.RateLimitResponse_DescriptorStatus{Code: pb.RateLimitResponse_OK}
	switch {
	case a.limited():
		status.CurrentLimit, status.LimitRemaining = a.told(), a.remaining()
		status.DurationUntilReset = durationpb.New(a.reset())
		if !a.decision.Allowed && !a.limit.shadow {
			status.Code = pb.RateLimitResponse_OVER_LIMIT
		}
	case a.unlimited():
		status.LimitRemaining = math.MaxUint32
	}
	return status
}

// told returns the limit that decided, which an override may have changed.
func (a *asked) told() *pb.RateLimitResponse_RateLimit {
	told, decided := a.limit.told, uint32(min(a.decision.Limit.Quota(), math.MaxUint32))
	if a.limit.shape.algorithm == tokenBucket || decided == told.RequestsPerUnit {
		return told
	}
	return &pb.RateLimitResponse_RateLimit{Name: told.Name, RequestsPerUnit: decided, Unit: told.Unit}
}

// tightest returns the status that headers describe: that of the last limit that refuses, or else
// of the first limit with the least remaining. It returns nil if no limit applies.
func (s *Service) tightest(all []asked, statuses []*pb.RateLimitResponse_DescriptorStatus) (tightest *pb.RateLimitResponse_DescriptorStatus) {
	least := uint32(math.MaxUint32)
	for i, status := range statuses {
		if status.CurrentLimit == nil {
			continue
		}
		refuses := status.Code == pb.RateLimitResponse_OVER_LIMIT && !s.options.Quota && !all[i].limit.quota
		if refuses || status.LimitRemaining < least {
			tightest, least = status, status.LimitRemaining
		}
	}
	return tightest
}

func (h *Headers) describe(s *pb.RateLimitResponse_DescriptorStatus) []*core.HeaderValue {
	if s == nil {
		return nil
	}
	number := func(name string, n uint64) *core.HeaderValue {
		return &core.HeaderValue{Key: name, Value: strconv.FormatUint(n, 10)}
	}
	return []*core.HeaderValue{
		number(h.Limit, uint64(s.CurrentLimit.RequestsPerUnit)),
		number(h.Remaining, uint64(s.LimitRemaining)),
		number(h.Reset, uint64(s.DurationUntilReset.GetSeconds())),
	}
}

// fields describes all limits, as the plugin does by package fields.
func (s *Service) fields(r *pb.RateLimitRequest, all []asked, response *pb.RateLimitResponse) (headers []*core.HeaderValue) {
	var list fields.List
	now, wait, quotas, room := int64(0), time.Duration(0), false, ratelimit.Never // until any of the quotas has room
	for i := range all {
		a := &all[i]
		if !a.limited() {
			continue
		}
		quota := s.options.Quota || a.limit.quota
		if a.limit.shadow {
			if quota {
				quotas, room = true, 0 // it never refuses
			}
			continue
		}
		if now == 0 {
			now = a.decision.At.UnixNano()
			list.Begin(fields.Seconds, now)
		}
		width := max(1, int64(a.decision.Limit.Window()))
		rule := fields.NewRule(nameOf(a.limit, r.GetDescriptors()[i]), []window.Limit{
			{Shape: window.Shape{Kind: window.FixedWindow, Width: width}, Max: a.decision.Limit.Quota()},
		}, fields.Requests)
		list.Rule(&rule, s.options.Fields)
		list.Limit(window.Standing{Remaining: uint64(a.remaining()), Next: int64(a.decision.RoomAfter), Reset: int64(a.decision.ResetAfter)})
		until := time.Duration(0)
		if response.Statuses[i].GetCode() == pb.RateLimitResponse_OVER_LIMIT {
			until = a.decision.RetryAfter
		}
		if a.remaining() == 0 { // also by this request, or before one that takes nothing
			until = max(until, a.decision.RoomAfter)
		}
		if quota {
			quotas, room = true, min(room, until)
		} else {
			wait = max(wait, until)
		}
	}
	if now == 0 {
		return nil
	}
	if quotas {
		wait = max(wait, room)
	}
	if list.End(); response.GetOverallCode() == pb.RateLimitResponse_OVER_LIMIT {
		list.Refuse(s.options.Fields, now+int64(wait), wait != ratelimit.Never)
	}
	for _, f := range list.Fields() {
		if f.Name != "x-envoy-ratelimited" { // Envoy adds it itself
			headers = append(headers, &core.HeaderValue{Key: f.Name, Value: string(f.Value)})
		}
	}
	return headers
}

// nameOf returns a limit's name, or else the keys of its descriptor. Characters that would need an
// escape become underscores.
func nameOf(l *limit, d *common.RateLimitDescriptor) string {
	name := l.name
	if name == "" {
		keys := []string{}
		for _, e := range d.GetEntries() {
			keys = append(keys, e.GetKey())
		}
		name = strings.Join(keys, ".")
	}
	return strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			return '_'
		}
		return c
	}, name)
}

// metadata returns the request, and the merged metadata of the limits that have room.
func metadata(r *pb.RateLimitRequest, all []asked, statuses []*pb.RateLimitResponse_DescriptorStatus) *structpb.Struct {
	told := map[string]*structpb.Value{"domain": structpb.NewStringValue(valid(r.GetDomain()))}
	descriptors := &structpb.ListValue{}
	for _, d := range r.GetDescriptors() {
		descriptors.Values = append(descriptors.Values, structpb.NewStructValue(describe(d)))
	}
	told["descriptors"] = structpb.NewListValue(descriptors)
	if hits := r.GetHitsAddend(); hits != 0 {
		told["hitsAddend"] = structpb.NewNumberValue(float64(hits))
	}
	passed := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for i := range all {
		if statuses[i].Code == pb.RateLimitResponse_OK && all[i].limited() {
			merge(passed, all[i].limit.metadata)
		}
	}
	if len(passed.Fields) > 0 {
		told["metadata"] = structpb.NewStructValue(passed)
	}
	return &structpb.Struct{Fields: told}
}

// valid replaces bytes of a request that are not UTF-8, where only that can be said.
func valid(text string) string { return strings.ToValidUTF8(text, "\ufffd") }

func describe(d *common.RateLimitDescriptor) *structpb.Struct {
	entries := &structpb.ListValue{}
	for _, e := range d.GetEntries() {
		entries.Values = append(entries.Values, structpb.NewStringValue(valid(e.GetKey()+"="+e.GetValue())))
	}
	told := map[string]*structpb.Value{"entries": structpb.NewListValue(entries)}
	if d.GetLimit() != nil {
		told["limit"] = structpb.NewStringValue(d.GetLimit().String())
	}
	if hits := d.GetHitsAddend(); hits != nil {
		told["hitsAddend"] = structpb.NewNumberValue(float64(hits.GetValue()))
	}
	return &structpb.Struct{Fields: told}
}

// merge adds the fields of from that into lacks, and merges structs that both have. from stays as
// it is.
func merge(into, from *structpb.Struct) {
	for name, value := range from.GetFields() {
		have, given := into.Fields[name], value.GetStructValue()
		switch {
		case have == nil && given != nil:
			copied := &structpb.Struct{Fields: map[string]*structpb.Value{}}
			merge(copied, given)
			into.Fields[name] = structpb.NewStructValue(copied)
		case have == nil:
			into.Fields[name] = value
		case have.GetStructValue() != nil && given != nil:
			merge(have.GetStructValue(), given)
		}
	}
}
