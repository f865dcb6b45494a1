package web

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"tugline.dev/tugline/hub/blob"
	"tugline.dev/tugline/shared/fleet"
)

type uploadOut struct {
	Offset int64 `header:"Tugline-Offset" doc:"bytes that are durable: what to send next"`
	Status int
}

// blobRoutes let people put inputs, in parts that a broken connection does not lose.
func (s *Server) blobRoutes() {
	put := op(http.MethodPut, "/v1/blobs/{sha256}", "put-blob", "Upload one part of an input", fleet.RoleOperator)
	put.MaxBodyBytes, put.BodyReadTimeout = maxPart+1, partTime // the library refuses what reaches its bound
	put.Errors = append(put.Errors, 409, 413, 416, 422, 507)
	put.RequestBody = &huma.RequestBody{}
	put.DefaultStatus, put.Responses = http.StatusCreated, map[string]*huma.Response{}
	put.Description = "Send the parts in order, each at most 8 MiB; the answer is 202 until the blob is whole and its digest verified, then 201. HEAD tells where to go on. Needs the role operator."
	huma.Register(s.api, put, wrap(s, func(ctx context.Context, in *struct {
		Digest  string `path:"sha256"`
		Size    int64  `query:"size" required:"true" minimum:"0" doc:"of the whole blob, at most 2 GiB"`
		Offset  int64  `query:"offset" minimum:"0"`
		RawBody []byte `contentType:"application/octet-stream"`
	}) (*uploadOut, error) {
		return s.upload(ctx, fleet.Digest(in.Digest), in.Size, in.Offset, in.RawBody)
	}))
	put.RequestBody.Required = false // there are empty blobs
	put.Responses["201"].Description = "The blob is whole and its digest verified"
	put.Responses["202"] = &huma.Response{Description: "The part is durable; more is to come", Headers: put.Responses["201"].Headers}
	head := byLeader(op(http.MethodHead, "/v1/blobs/{sha256}", "head-blob", "How much of an input is stored", fleet.RoleOperator))
	head.DefaultStatus, head.Responses = http.StatusOK, map[string]*huma.Response{}
	huma.Register(s.api, head, wrap(s, func(ctx context.Context, in *struct {
		Digest string `path:"sha256"`
		Size   int64  `query:"size" minimum:"0" doc:"of the whole blob; without it only a whole one is found"`
	}) (*uploadOut, error) {
		d := fleet.Digest(in.Digest)
		if info, err := s.cfg.Blobs.Renew(ctx, d); err == nil {
			return &uploadOut{Offset: info.Size, Status: http.StatusOK}, nil
		} else if in.Size == 0 || !errors.Is(err, fleet.BlobMissing) {
			return nil, err
		}
		off, err := s.cfg.Blobs.Offset(ctx, d, in.Size)
		if err != nil {
			return nil, err
		}
		return &uploadOut{Offset: off, Status: http.StatusAccepted}, nil
	}))
	head.Responses["200"].Description = "The blob is whole"
	head.Responses["202"] = &huma.Response{Description: "The blob is on its way", Headers: head.Responses["200"].Headers}
	huma.Register(s.api, op(http.MethodGet, "/v1/blobs/{sha256}", "get-blob", "A stored blob", fleet.RoleOperator), wrap(s, func(ctx context.Context, in *struct {
		Digest string `path:"sha256"`
	}) (*huma.StreamResponse, error) {
		return s.blob(ctx, fleet.Digest(in.Digest), "")
	}))
}

func (s *Server) upload(ctx context.Context, d fleet.Digest, size, offset int64, part []byte) (*uploadOut, error) {
	if !d.Valid() {
		return nil, wrong(fleet.BadRequest, "%q is not a SHA-256 in lower-case hex", d)
	}
	end, whole, err := s.cfg.Blobs.Add(ctx, d, size, part, offset)
	var gap *blob.GapError
	if errors.As(err, &gap) {
		return nil, wrong(fleet.SpoolGap, "the part begins at %d and the hub wants byte %d next; ask with HEAD and ?size=%d, and go on there", offset, gap.Want, size)
	}
	if err != nil {
		return nil, err
	}
	if !whole {
		return &uploadOut{Offset: end, Status: http.StatusAccepted}, nil
	}
	return &uploadOut{Offset: end, Status: http.StatusCreated}, nil
}
