package ratelimitservice

import (
	"cmp"
	"errors"
	"fmt"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec for other messages
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// maxEntries bounds the entries of all descriptors of a request: two bytes take a hundred.
const maxEntries = 1 << 17

var errManyEntries = fmt.Errorf("want at most %d entries of descriptors", maxEntries)

var errNoField = errors.New("want the number and type of a field")

// codec is gRPC's codec, except that a request's texts may have any bytes. Envoy makes descriptors of
// headers, whose bytes clients choose, and lets a request pass if its question can't be read. Package
// proto refuses texts that are not UTF-8.
type codec struct{ encoding.CodecV2 }

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, into any) error {
	r, ok := into.(*pb.RateLimitRequest)
	if !ok {
		return c.CodecV2.Unmarshal(data, into)
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	return decodeRequest(whole.ReadOnlyData(), r)
}

// decodeRequest decodes a request as package proto does, but keeps all bytes of texts. It keeps
// a single descriptor beyond those that a request may have, for which the service refuses the request.
func decodeRequest(b []byte, r *pb.RateLimitRequest) error {
	entries := 0
	return eachField(b, func(field protowire.Number, text []byte, number uint64) error {
		switch {
		case field == 1 && text != nil:
			r.Domain = string(text)
		case field == 2 && text != nil && len(r.Descriptors) <= maxDescriptors:
			d := new(common.RateLimitDescriptor)
			r.Descriptors = append(r.Descriptors, d)
			return decodeDescriptor(text, d, &entries)
		case field == 3 && text == nil:
			r.HitsAddend = uint32(number)
		}
		return nil
	})
}

// decodeDescriptor adds to entries those of a descriptor.
func decodeDescriptor(b []byte, d *common.RateLimitDescriptor, entries *int) error {
	return eachField(b, func(field protowire.Number, text []byte, number uint64) error {
		switch {
		case field == 1 && text != nil:
			if *entries++; *entries > maxEntries {
				return errManyEntries
			}
			e := new(common.RateLimitDescriptor_Entry)
			d.Entries = append(d.Entries, e)
			return decodeEntry(text, e)
		case field == 2 && text != nil:
			d.Limit = cmp.Or(d.Limit, new(common.RateLimitDescriptor_RateLimitOverride))
			return decodeLimit(text, d.Limit)
		case field == 3 && text != nil:
			d.HitsAddend = cmp.Or(d.HitsAddend, new(wrapperspb.UInt64Value))
			return decodeNumber(text, &d.HitsAddend.Value)
		case field == 4 && text == nil:
			d.IsNegativeHits = number != 0
		}
		return nil
	})
}

func decodeEntry(b []byte, e *common.RateLimitDescriptor_Entry) error {
	return eachField(b, func(field protowire.Number, text []byte, _ uint64) error {
		switch {
		case field == 1 && text != nil:
			e.Key = string(text)
		case field == 2 && text != nil:
			e.Value = string(text)
		}
		return nil
	})
}

func decodeLimit(b []byte, l *common.RateLimitDescriptor_RateLimitOverride) error {
	return eachField(b, func(field protowire.Number, text []byte, number uint64) error {
		switch {
		case field == 1 && text == nil:
			l.RequestsPerUnit = uint32(number)
		case field == 2 && text == nil:
			l.Unit = typepb.RateLimitUnit(number)
		case field == 3 && text != nil:
			l.UnitMultiplier = cmp.Or(l.UnitMultiplier, new(wrapperspb.UInt32Value))
			multiplier := uint64(l.UnitMultiplier.Value)
			err := decodeNumber(text, &multiplier)
			l.UnitMultiplier.Value = uint32(multiplier)
			return err
		}
		return nil
	})
}

// decodeNumber decodes a message that wraps a number.
func decodeNumber(b []byte, into *uint64) error {
	return eachField(b, func(field protowire.Number, text []byte, number uint64) error {
		if field == 1 && text == nil {
			*into = number
		}
		return nil
	})
}

// eachField visits the fields of a message that are texts, messages or numbers. text is nil for a
// number, and only then.
func eachField(b []byte, visit func(field protowire.Number, text []byte, number uint64) error) error {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 || field > protowire.MaxValidNumber {
			return errNoField
		}
		b = b[n:]
		var text []byte
		var number uint64
		switch kind {
		case protowire.BytesType:
			text, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(b)
		default:
			n = protowire.ConsumeFieldValue(field, kind, b)
			field = 0
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if err := visit(field, text, number); err != nil {
			return err
		}
	}
	return nil
}
